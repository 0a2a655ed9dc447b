//! Files of `configurations`: field specifications besides the builtin ones.

use crate::error::Error;
use crate::fields::Fields;
use crate::fieldspec::FieldSpec;

use super::{BackReference, Specs};

/// Reads the fields of a configuration file.
pub(crate) fn read(f: &mut Fields<'_>) -> Result<Specs, Error> {
    let mut specs = Specs {
        name_prefix: f.list("namePrefix", field)?,
        name_suffix: f.list("nameSuffix", field)?,
        namespace: f.list("namespace", field)?,
        common_labels: f.list("commonLabels", field)?,
        labels: f.list("labels", field)?,
        template_labels: f.list("templateLabels", field)?,
        annotations: f.list("commonAnnotations", field)?,
        images: f.list("images", field)?,
        replicas: f.list("replicas", field)?,
        var_reference: f.list("varReference", field)?,
        references: f.list("nameReference", |f| {
            Ok(BackReference {
                group: f.text("group")?.into(),
                version: f.text("version")?.into(),
                kind: f.text("kind")?.into(),
                referrers: f.list("fieldSpecs", field)?,
            })
        })?,
    };
    specs.sort();
    Ok(specs)
}

/// How many parts the path of a field may have: what is missing on the way is made.
const MAX_PARTS: usize = 100;

/// Reads one field specification.
pub(crate) fn field(f: &mut Fields<'_>) -> Result<FieldSpec, Error> {
    let (group, version, kind) = (f.text("group")?, f.text("version")?, f.text("kind")?);
    let path = f.text("path")?;
    let spec = FieldSpec::new(&group, &version, &kind, &path, f.flag("create")?);
    if spec.path.len() > MAX_PARTS {
        return Err(f.error("path", format!("has more than {MAX_PARTS} parts")));
    }
    Ok(spec)
}
