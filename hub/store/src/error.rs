//! What can go wrong between the hub and its database.

use std::sync::Arc;

/// A failed use of the database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL is not a Postgres URL.
    #[error("read the database's URL")]
    Url(#[source] sqlx::Error),
    /// The way to the database may be read or changed by others.
    #[error(
        "the database at {host} is not on this machine, and sslmode={mode} does not check that it is the right one: add \
         sslmode=verify-full to the database's URL (and sslrootcert=FILE, where a private CA signed its certificate), or \
         accept that with --allow-insecure-database"
    )]
    Insecure {
        /// Where the database is.
        host: String,
        /// What the URL says.
        mode: String,
    },
    /// TLS to the database, which nobody asked for by name, failed.
    #[error(
        "connect to the database at {host}, which is not on this machine, by TLS with its certificate checked: add \
         sslrootcert=FILE to the database's URL where a private CA signed it, or accept a connection that others can read and \
         change with --allow-insecure-database"
    )]
    Unverified {
        /// Where the database is.
        host: String,
        /// What went wrong.
        #[source]
        source: sqlx::migrate::MigrateError,
    },
    /// A migration failed.
    #[error("bring the database's schema up to date")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// The schema was not made by this version's migrations.
    #[error(
        "bring the database's schema up to date: migration {0} of this database is not the one that this version of the hub has. \
         The database was used with another build of the hub, or changed by hand: start the build that it was used with before, or \
         restore a backup"
    )]
    OtherMigrations(i64),
    /// A newer version changed the schema in a way that this one cannot work with.
    #[error(
        "use the database: its schema is of a newer version of the hub, and only replicas that know migration {needed} can work with it; \
         this one knows those up to {known}. Start the newer version, or restore a backup from before the upgrade"
    )]
    NewerSchema {
        /// The newest migration that a replica has to know.
        needed: i64,
        /// The newest one that this version knows.
        known: i64,
    },
    /// The schema is to be changed in a way that replicas of older versions cannot live with.
    #[error(
        "bring the database's schema up to date: {0} replicas of the hub run an older version, which cannot work with the \
         new schema. Stop all of them, then start this version (in Kubernetes: scale the hub's Deployment to 0, change \
         the image, scale it up again)"
    )]
    OlderReplicas(i64),
    /// A statement failed.
    #[error("{what}")]
    Query {
        /// What was attempted.
        what: &'static str,
        /// What Postgres said.
        #[source]
        source: sqlx::Error,
    },
    /// The database went away while it was asked; why.
    #[error("the database is away: {0}")]
    Away(&'static str),
    /// A question that was asked together with others failed, for all who asked it.
    #[error(transparent)]
    Shared(Arc<StoreError>),
    /// A row holds what no version of the hub writes.
    #[error("{what}: the stored value is not readable: {why}")]
    Corrupt {
        /// What was being read.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The key file has no keys, or one of them twice.
    #[error("use the key file: {why}")]
    KeyFile {
        /// What is wrong with it.
        why: String,
    },
    /// The key file lacks keys that values of the database are sealed with.
    #[error(
        "the key file does not fit this database: values are sealed with the keys {sealed_with}; the file lacks {missing} and \
         has {held}. Give --key-file a file with all of them, the newest first, one in a line. A key may be taken \
         out of the file once `roadstead-hub rekey` has ended, and `roadstead-hub rekey --check` says what still needs it. If the \
         key is lost, so is what was sealed with it: restore the key file from its backup; a database that was restored needs \
         the keys of its time"
    )]
    KeysMissing {
        /// Ids of those that it lacks.
        missing: String,
        /// Ids of those that the database needs.
        sealed_with: String,
        /// Ids of those that it has.
        held: String,
    },
    /// No key of the key file opens a database that does not say its keys' ids.
    #[error(
        "the key file does not fit this database: its authorities were sealed by a version that noted no ids of keys, and none of \
         the file's keys ({held}) opens them. Give --key-file the file that this database was used with before. If the key is \
         lost, so is what was sealed with it: restore the key file from its backup"
    )]
    WrongKeys {
        /// Ids of the keys that the file has.
        held: String,
    },
    /// A value is sealed with a key that is not in the key file.
    #[error("{what}: it is sealed with the key {id}, which the hub's key file does not have")]
    UnknownKey {
        /// What was being opened.
        what: &'static str,
        /// The key.
        id: crate::KeyId,
    },
    /// The object store with the artifacts is unavailable. Why is for the operator: it names the bucket.
    #[error("the artifact store is unavailable")]
    ArtifactStore(#[source] roadstead_s3::BucketError),
    /// A rekey cannot go on.
    #[error("rekey: {0}")]
    Rekey(String),
    /// A sealed value does not open under the hub's key.
    #[error(
        "{what}: cannot be decrypted with the hub's key file; is it the one that this database was created with?"
    )]
    Seal {
        /// What was being opened or sealed.
        what: &'static str,
    },
}

impl StoreError {
    /// For `map_err`: names the statement.
    pub(crate) fn query(what: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Query { what, source }
    }

    /// What is wrong with the database as a whole, where that is why: it cannot be reached, takes no writes, or is out of
    /// something. The same may do later.
    #[must_use]
    pub fn outage(&self) -> Option<&'static str> {
        match self {
            Self::Query { source, .. } => crate::health::reason(source),
            Self::Away(why) => Some(why),
            Self::Shared(error) => error.outage(),
            Self::Url(_)
            | Self::Migrate(_)
            | Self::OtherMigrations(_)
            | Self::NewerSchema { .. }
            | Self::OlderReplicas(_)
            | Self::Insecure { .. }
            | Self::Unverified { .. }
            | Self::Corrupt { .. }
            | Self::KeyFile { .. }
            | Self::KeysMissing { .. }
            | Self::WrongKeys { .. }
            | Self::UnknownKey { .. }
            | Self::ArtifactStore(_)
            | Self::Rekey(_)
            | Self::Seal { .. } => None,
        }
    }

    /// Whether the row that a statement wanted to write exists already (a unique index said so).
    #[must_use]
    pub fn is_unique_violation(&self) -> bool {
        match self {
            Self::Query { source: sqlx::Error::Database(error), .. } => error.is_unique_violation(),
            Self::Shared(error) => error.is_unique_violation(),
            _ => false,
        }
    }
}
