//! What the command prints, on terminals and elsewhere. Without a mount.

#[test]
fn help_fits_and_has_colours_on_terminals_only() {
    let program = env!("CARGO_BIN_EXE_zonal-mount");
    zonal_cli::checks::fits(program, &["mount --help"]);
    zonal_cli::checks::colours(program, "mount --help");
}
