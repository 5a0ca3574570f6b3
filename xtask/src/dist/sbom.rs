//! The list of components as CycloneDX 1.5. It has no date and no random id: the same program has the same list.

use serde_json::{Value, json};

use super::components::{Component, Components};

const PROGRAM: &str = "toolgate-cli";

/// Renders the list as JSON.
pub(super) fn render(components: &Components) -> Result<String, String> {
    let all = components.0.values();
    let program = { all.clone() }
        .find(|component| component.name == PROGRAM)
        .ok_or_else(|| format!("{PROGRAM} is not among its own components"))?;
    let others: Vec<Value> = { all.clone() }
        .filter(|component| component.name != PROGRAM)
        .map(|component| describe(component, "library"))
        .collect();
    let dependencies: Vec<Value> = all.map(describe_dependencies).collect();
    let list = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": describe(program, "application") },
        "components": others,
        "dependencies": dependencies,
    });
    let text = serde_json::to_string_pretty(&list).map_err(|error| error.to_string())?;
    Ok(text + "\n")
}

fn describe(component: &Component, kind: &str) -> Value {
    let reference = package_url(&component.name, &component.version);
    let mut described = json!({
        "type": kind,
        "bom-ref": reference,
        "name": component.name,
        "version": component.version,
        "purl": reference,
    });
    if let Some(license) = &component.license {
        // Old manifests write `MIT/Apache-2.0`, which is no SPDX expression.
        let expression = license.replace('/', " OR ");
        described["licenses"] = json!([{ "expression": expression }]);
    }
    if let Some(checksum) = &component.checksum {
        described["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    described
}

fn describe_dependencies(component: &Component) -> Value {
    let urls = { component.uses.iter() }.filter_map(|key| {
        let (name, version) = key.rsplit_once('@')?;
        Some(package_url(name, version))
    });
    json!({
        "ref": package_url(&component.name, &component.version),
        "dependsOn": urls.collect::<Vec<_>>(),
    })
}

fn package_url(name: &str, version: &str) -> String {
    // `+` begins build metadata in a version, and is written as %2B in a URL.
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}
