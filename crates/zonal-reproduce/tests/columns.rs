//! What the command prints, on terminals and elsewhere.

#[test]
fn help_fits_and_has_colours_on_terminals_only() {
    let program = assert_cmd::cargo::cargo_bin("zonal-reproduce");
    zonal_cli::checks::fits(&program, &["reproduce --help"]);
    zonal_cli::checks::colours(&program, "reproduce --help");
}
