//! What of sources is refused when it is written, in Flux's words where it has some.

use serde_json::json;

use crate::KindId;
use crate::rules::check;

/// What is wrong with a spec that takes the place of another one.
fn told(kind: KindId, spec: &serde_json::Value, old: Option<&serde_json::Value>) -> Vec<String> {
    let object = |spec: &serde_json::Value| json!({ "metadata": { "name": "a" }, "spec": spec });
    let verdict = check(kind, &object(spec), old.map(object).as_ref());
    verdict.errors.iter().map(ToString::to_string).collect()
}

#[test]
fn durations_of_sources_are_written_as_flux_has_them() {
    let kinds = [
        (KindId::GitRepository, json!({ "url": "https://git.example/x" })),
        (KindId::OciRepository, json!({ "url": "oci://registry.example/x" })),
        (KindId::Bucket, json!({ "bucketName": "b", "endpoint": "s3.example" })),
        (KindId::HelmRepository, json!({ "url": "https://charts.example" })),
        (
            KindId::HelmChart,
            json!({ "chart": "app", "sourceRef": { "kind": "HelmRepository", "name": "a" } }),
        ),
    ];
    for (kind, spec) in kinds {
        let with = |field: &str, text: &str| {
            let mut spec = spec.clone();
            spec[field] = text.into();
            spec
        };
        for good in ["1m", "1h30m", "90s", "1.5m", "1500ms"] {
            assert_eq!(told(kind, &with("interval", good), None), [""; 0], "{good}");
            let of_timeout = told(kind, &with("timeout", good), None);
            assert_eq!(of_timeout.is_empty(), !good.contains('h'), "{good}: {of_timeout:?}");
        }
        for bad in ["+5m", "5000000us", "9000000000ns", ".5m", "1.m", "5 m", "5m\n"] {
            for (field, pattern) in [
                ("interval", r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"),
                ("timeout", r"^([0-9]+(\.[0-9]+)?(ms|s|m))+$"),
            ] {
                let (bad, found) = (with(field, bad), told(kind, &with(field, bad), None));
                let wanted = format!("spec.{field}: Invalid value: {}: should match '{pattern}'", bad[field]);
                assert_eq!(found, [wanted]);
                // One that is there already may stay.
                assert_eq!(told(kind, &bad, Some(&bad)), [""; 0]);
                assert_eq!(told(kind, &bad, Some(&with(field, "2m"))).len(), 1);
            }
        }
    }
}

#[test]
fn charts_of_helm_repositories_have_names_and_those_of_other_sources_paths() {
    let spec = |kind: &str, chart: &str| json!({ "interval": "1m", "chart": chart, "sourceRef": { "kind": kind, "name": "a" } });
    for good in ["podinfo", "org/charts/app", "a.b-c", "0", "a/.b", "a/"] {
        assert_eq!(told(KindId::HelmChart, &spec("HelmRepository", good), None), [""; 0], "{good}");
    }
    for bad in ["PodInfo", "a_b", "/a", "../a", "a//b", "a..b", "a b", "é"] {
        let bad_one = spec("HelmRepository", bad);
        let wanted = format!("spec.chart: Invalid value: \"{bad}\": should match '^([-a-z0-9]+/?\\.?)+$'");
        assert_eq!(told(KindId::HelmChart, &bad_one, None), [wanted.as_str()]);
        assert_eq!(told(KindId::HelmChart, &bad_one, Some(&bad_one)), [""; 0], "{bad}");
        for kind in ["GitRepository", "Bucket"] {
            assert_eq!(told(KindId::HelmChart, &spec(kind, bad), None), [""; 0], "{bad}");
            assert_eq!(told(KindId::HelmChart, &bad_one, Some(&spec(kind, bad))), [wanted.as_str()]);
        }
    }
}

#[test]
fn names_of_references_have_no_slash_at_their_ends() {
    let spec =
        |name: &str| json!({ "interval": "1m", "url": "https://git.example/x", "ref": { "name": name } });
    for good in ["refs/heads/main", "refs/tags/v1^{}", "refs/pull/1/head", ""] {
        assert_eq!(told(KindId::GitRepository, &spec(good), None), [""; 0], "{good}");
    }
    for bad in ["/refs/heads/main", "refs/heads/main/", "/"] {
        let wanted =
            format!("spec.ref.name: Invalid value: \"{bad}\": Git refs cannot begin or end with a slash '/'");
        assert_eq!(told(KindId::GitRepository, &spec(bad), None), [wanted]);
        assert_eq!(told(KindId::GitRepository, &spec(bad), Some(&spec(bad))), [""; 0], "{bad}");
    }
}

/// The rules that Flux's own API has in CEL, with its words.
#[test]
fn fields_of_sources_that_exclude_each_other_are_refused_in_fluxs_words() {
    let base = |kind: KindId| match kind {
        KindId::Bucket => json!({ "interval": "1m", "bucketName": "b", "endpoint": "s3.example" }),
        KindId::GitRepository => json!({ "interval": "1m", "url": "https://git.example/x" }),
        _ => {
            json!({ "interval": "1m", "chart": "app", "sourceRef": { "kind": "HelmRepository", "name": "a" } })
        }
    };
    let name = || json!({ "name": "s" });
    let sts = |provider: &str| json!({ "provider": provider, "endpoint": "https://sts.example" });
    let sts_with = |field: &str| {
        let mut sts = sts("aws");
        sts[field] = name();
        json!({ "provider": "aws", "sts": sts })
    };
    let only_ldap = "'ldap' is the only supported STS provider for the 'generic' Bucket provider";
    let sts_of_cloud = "STS configuration is only supported for the 'aws' and 'generic' Bucket providers";
    let of_generic = "ServiceAccountName is not supported for the 'generic' Bucket provider";
    let of_clouds = "serviceAccountName can only be set when provider is 'azure' or 'aws'";
    for (kind, more, wanted) in [
        (KindId::Bucket, json!({ "provider": "gcp", "sts": sts("aws") }), Some(sts_of_cloud)),
        (KindId::Bucket, json!({ "provider": "azure", "sts": sts("ldap") }), Some(sts_of_cloud)),
        (
            KindId::Bucket,
            json!({ "provider": "aws", "sts": sts("ldap") }),
            Some("'aws' is the only supported STS provider for the 'aws' Bucket provider"),
        ),
        (KindId::Bucket, json!({ "provider": "generic", "sts": sts("aws") }), Some(only_ldap)),
        (KindId::Bucket, json!({ "sts": sts("aws") }), Some(only_ldap)),
        (
            KindId::Bucket,
            sts_with("secretRef"),
            Some("spec.sts.secretRef is not required for the 'aws' STS provider"),
        ),
        (
            KindId::Bucket,
            sts_with("certSecretRef"),
            Some("spec.sts.certSecretRef is not required for the 'aws' STS provider"),
        ),
        (KindId::Bucket, json!({ "serviceAccountName": "a" }), Some(of_generic)),
        (
            KindId::Bucket,
            json!({ "provider": "aws", "serviceAccountName": "a", "secretRef": name() }),
            Some("cannot set both .spec.secretRef and .spec.serviceAccountName"),
        ),
        (KindId::Bucket, json!({ "sts": sts("ldap") }), None),
        (KindId::Bucket, json!({ "provider": "aws", "sts": sts("aws"), "serviceAccountName": "a" }), None),
        (KindId::GitRepository, json!({ "serviceAccountName": "a" }), Some(of_clouds)),
        (KindId::GitRepository, json!({ "provider": "generic", "serviceAccountName": "a" }), Some(of_clouds)),
        (KindId::GitRepository, json!({ "provider": "github", "serviceAccountName": "a" }), Some(of_clouds)),
        (KindId::GitRepository, json!({ "provider": "azure", "serviceAccountName": "a" }), None),
        (KindId::GitRepository, json!({ "provider": "aws", "serviceAccountName": "a" }), None),
        (
            KindId::HelmChart,
            json!({ "sourceRef": { "kind": "Bucket", "name": "a" }, "verify": { "provider": "cosign" } }),
            Some("spec.verify is only supported when spec.sourceRef.kind is 'HelmRepository'"),
        ),
        (KindId::HelmChart, json!({ "verify": { "provider": "cosign" } }), None),
    ] {
        let mut spec = base(kind);
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let wanted: Vec<String> =
            wanted.into_iter().map(|why| format!("spec: Invalid value: \"object\": {why}")).collect();
        assert_eq!(told(kind, &spec, None), wanted, "{spec}");
    }
}
