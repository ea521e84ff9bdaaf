//! How the kernel is linked: where its script says, at fixed addresses, with a note that a boot loader
//! finds (PVH).

fn main() {
    println!("cargo::rerun-if-changed=link.ld");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none") {
        let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        for arg in ["--no-pie", "--build-id=none", "-zmax-page-size=4096", "-znorelro"] {
            println!("cargo::rustc-link-arg-bins={arg}");
        }
        println!("cargo::rustc-link-arg-bins=-T{folder}/link.ld");
    }
}
