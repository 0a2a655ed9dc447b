//! Prints the OpenAPI of the fleet views, for `cargo xtask generate`.

fn main() {
    println!("{:#}", roadstead_hub_api::fleet_document());
}
