//! What the command prints, on terminals and elsewhere.

#[test]
fn what_it_prints_fits_and_has_colours_on_terminals_only() {
    let program = assert_cmd::cargo::cargo_bin("zonal-reproduce");
    let run = "reproduce --quick --only fair_zone --no-progress";
    zonal_cli::checks::fits(&program, &["reproduce --help", run]);
    zonal_cli::checks::colours(&program, "reproduce --help");
}
