//! From whom objects have their rights: what of them a Kustomization made or took over, and which ones are above that.

mod family;

use roadstead_api::{KindId, PipelineRole};
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row as _};

use crate::counted::Connections;
use crate::references::kinds;
use crate::together::{Answers, Named};
use crate::{Store, StoreError};
pub use family::Root;

/// What a child has from those above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descent {
    /// The namespace that Git names; empty where it names none.
    pub git_namespace: String,
    /// `namespace/name` of the account that its parent had when it wrote it; empty for none.
    pub account: String,
    /// A person made it, and had its parent take it over.
    pub adopted: bool,
    /// Those above it, its parent first; none where that is gone, or a person has taken it back.
    pub ancestors: Vec<Ancestor>,
}

/// A Kustomization above another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestor {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `spec.clusterRef`, `spec.kubeConfig`, `spec.serviceAccount`, `spec.serviceAccountName` and `spec.delegation` of it.
    pub spec: Value,
    /// The namespace that Git names for it, or that its annotation names; empty where neither does.
    pub git_namespace: String,
    /// `namespace/name` of the account of its own parent; empty for none.
    pub account: String,
}

impl Descent {
    /// Whether nobody is above it any more.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.ancestors.is_empty()
    }
}

/// Whether a Kustomization made what the row of `child` is about, or a person had it take that over. What a person made and is
/// merely kept up to date has rights of its own.
const GIT_WROTE: &str = "(NOT child.kept OR child.adopted)";

/// The parent whose rights the row's object, `own`, has: not where a person who had handed it over has taken it back, nor as long as the
/// parent has not written what was there before.
const PARENT: &str = "CASE WHEN NOT child.handing_over AND (NOT child.kept
    OR own.object #> '{metadata,annotations,fleet.roadstead.dev/adopted-by}' IS NOT NULL) THEN child.parent END";

/// What these objects have from those above them, at most so many of them each.
async fn descents_of(
    pool: &Connections,
    objects: Vec<(Named, usize)>,
) -> Result<Answers<(Named, usize), Descent>, StoreError> {
    let what = "look up children's parents";
    let of = |part: fn(&Named) -> &str| objects.iter().map(|(named, _)| part(named)).collect::<Vec<_>>();
    let depths: Vec<i32> =
        objects.iter().map(|(_, depth)| i32::try_from(*depth).unwrap_or(i32::MAX)).collect();
    let rows = sqlx::query(AssertSqlSafe(format!(
        "WITH RECURSIVE up AS (
           SELECT place, most, child.git_namespace, child.account, child.adopted, {PARENT} AS parent, 1 AS depth
           FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int[]) WITH ORDINALITY LIMIT $5)
                AS asked (kind, namespace, name, most, place)
           JOIN child ON child.kind = asked.kind AND child.namespace = asked.namespace AND child.name = asked.name
           JOIN resource own ON own.uid = child.object
           WHERE {GIT_WROTE}
           UNION ALL
           SELECT place, most, child.git_namespace, child.account, child.adopted, {PARENT}, up.depth + 1
           FROM up JOIN resource own ON own.uid = up.parent
           JOIN child ON child.kind = own.kind AND child.namespace = own.namespace
             AND child.name = own.name AND child.object = own.uid
           WHERE up.depth < most AND {GIT_WROTE}
         )
         SELECT up.place, up.git_namespace, up.account, up.adopted, parent.namespace, parent.name,
                coalesce(parent.object #>> '{{metadata,annotations,fleet.roadstead.dev/git-namespace}}', '') AS annotated,
                CASE WHEN parent.uid IS NOT NULL THEN jsonb_build_object(
                  'clusterRef', parent.object #> '{{spec,clusterRef}}',
                  'kubeConfig', parent.object #> '{{spec,kubeConfig}}',
                  'serviceAccount', parent.object #> '{{spec,serviceAccount}}',
                  'serviceAccountName', parent.object #> '{{spec,serviceAccountName}}',
                  'delegation', parent.object #> '{{spec,delegation}}') END AS spec
         FROM up LEFT JOIN resource parent ON parent.uid = up.parent ORDER BY up.place, up.depth"
    )))
    .bind(of(|(kind, ..)| kind.get().kind))
    .bind(of(|(_, namespace, _)| namespace))
    .bind(of(|(_, _, name)| name))
    .bind(depths)
    .bind(i64::try_from(objects.len()).unwrap_or(i64::MAX))
    .fetch_all(pool)
    .await
    .map_err(StoreError::query(what))?;
    let mut descents: Vec<Option<Descent>> = vec![None; objects.len()];
    for row in rows {
        let place = usize::try_from(row.try_get::<i64, _>("place").map_err(StoreError::query(what))?);
        let place = place.ok().and_then(|place| place.checked_sub(1));
        if let Some(descent) = place.and_then(|place| descents.get_mut(place)) {
            add_above(descent, &row).map_err(StoreError::query(what))?;
        }
    }
    let found = objects.into_iter().zip(descents);
    Ok(found.filter_map(|(object, descent)| Some((object, Ok(descent?)))).collect())
}

/// Adds what the next row says of those above an object.
fn add_above(descent: &mut Option<Descent>, row: &PgRow) -> Result<(), sqlx::Error> {
    let (git_namespace, account): (String, String) = (row.try_get("git_namespace")?, row.try_get("account")?);
    let adopted = row.try_get("adopted")?;
    let found = descent.get_or_insert_with(|| Descent {
        git_namespace: git_namespace.clone(),
        account: account.clone(),
        adopted,
        ancestors: Vec::new(),
    });
    // A row says of the one above the row before it what that remembers of itself.
    if let Some(above) = found.ancestors.last_mut() {
        (above.git_namespace, above.account) = (git_namespace, account);
    }
    if let Some(namespace) = row.try_get::<Option<String>, _>("namespace")? {
        found.ancestors.push(Ancestor {
            namespace,
            name: row.try_get("name")?,
            spec: row.try_get("spec")?,
            git_namespace: row.try_get("annotated")?,
            account: String::new(),
        });
    }
    Ok(())
}

impl Store {
    /// What an object of a build has from those above it, at most `depth` of them; none where no Kustomization made it or took
    /// it over. What was taken over and is a person's again has none above it, and still what it had from them. Asked
    /// [together](crate::together) with what others have.
    ///
    /// # Errors
    /// Where the database cannot be reached.
    pub async fn descent(
        &self,
        kind: KindId,
        namespace: &str,
        name: &str,
        depth: usize,
    ) -> Result<Option<Descent>, StoreError> {
        let object = ((kind, namespace.to_owned(), name.to_owned()), depth);
        let ask = |this: Self, objects| async move { descents_of(&this.pool, objects).await };
        self.together.descents.ask(&self.health, self, object, ask).await
    }

    /// The URLs for which a person used this Secret of a namespace: those of sources that no Kustomization made or took over.
    ///
    /// # Errors
    /// Where the database cannot be reached.
    pub async fn urls_of_secret(&self, namespace: &str, secret: &str) -> Result<Vec<String>, StoreError> {
        let mut users = kinds(PipelineRole::Source);
        users.push(KindId::Provider.get().kind);
        sqlx::query_scalar(AssertSqlSafe(format!(
            "SELECT DISTINCT used.url FROM resource, LATERAL (VALUES
                 (object #>> '{{spec,secretRef,name}}', object #>> '{{spec,url}}'),
                 (object #>> '{{spec,secretRef,name}}',
                  CASE WHEN object #>> '{{spec,endpoint}}' LIKE '%://%' THEN ''
                       WHEN object #>> '{{spec,insecure}}' = 'true' THEN 'http://' ELSE 'https://' END
                  || (object #>> '{{spec,endpoint}}')),
                 (object #>> '{{spec,sts,secretRef,name}}', object #>> '{{spec,sts,endpoint}}'),
                 (object #>> '{{spec,secretRef,name}}', object #>> '{{spec,address}}')
             ) AS used (secret, url)
             WHERE kind = ANY($3) AND namespace = $1 AND refers_to @> ARRAY['Secret/' || $1 || '/' || $2]
               AND used.secret = $2 AND used.url IS NOT NULL
               AND NOT EXISTS (SELECT FROM child WHERE child.kind = resource.kind AND child.namespace = resource.namespace
                               AND child.name = resource.name AND child.object = resource.uid AND {GIT_WROTE})"
        )))
        .bind(namespace)
        .bind(secret)
        .bind(users)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look up what a Secret is used for"))
    }
}
