//! Where a bucket is: its server, and the URLs of its objects there.

use roadstead_s3::Place as S3Place;
pub(super) use roadstead_s3::place::is_region;
use roadstead_s3::place::{encoded, is_bucket, region_of, url};
use url::Url;

use super::request::{BucketRequest, BucketStore};
use crate::tree::shown;

/// A bucket on its server.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Scheme, host and port.
    pub(super) server: Url,
    /// What stands before keys: begins with `/`, and does not end so.
    path: String,
    /// Of S3.
    pub(super) region: String,
    /// Of Azure: the storage account.
    pub(super) account: String,
}

/// The URL of what `spec.endpoint` says.
pub(crate) fn server_url(endpoint: &str, insecure: bool) -> String {
    if endpoint.contains("://") {
        endpoint.to_owned()
    } else {
        format!("{}://{endpoint}", if insecure { "http" } else { "https" })
    }
}

impl Place {
    /// Where the request's bucket is; `region` is what the server once said.
    pub(super) fn of(request: &BucketRequest, region: Option<&str>) -> Result<Self, String> {
        let mut server = server(&request.endpoint, request.insecure)?;
        let bucket = &request.bucket;
        if !is_bucket(bucket) {
            return Err(format!("'{}' is not the name of a bucket", shown(bucket)));
        }
        let above = server.path().trim_matches('/').to_owned();
        if !above.is_empty() && request.store != BucketStore::Azure {
            return Err(format!("the endpoint `{}` has a path: want host[:port]", shown(&request.endpoint)));
        }
        server.set_path("/");
        let given = request.region.as_deref().filter(|region| !region.is_empty());
        if let Some(odd) = given.filter(|region| !is_region(region)) {
            return Err(format!("'{}' is not the name of a region", shown(odd)));
        }
        let host = server.host_str().unwrap_or_default().to_owned();
        let region = region_of(&host, region.or(given));
        let (mut path, mut account) = (format!("/{bucket}"), String::new());
        match request.store {
            BucketStore::S3 => {
                let S3Place { server, path, region } =
                    S3Place::new(server, bucket, Some(&region)).map_err(|why| shown(&why))?;
                return Ok(Self { server, path, region, account });
            }
            BucketStore::Gcs => path = format!("/storage/v1/b/{bucket}/o"),
            BucketStore::Azure if above.is_empty() => {
                account = host.split('.').next().unwrap_or_default().to_owned();
            }
            BucketStore::Azure => {
                account = above.split('/').next().unwrap_or_default().to_owned();
                path = format!("/{above}/{bucket}");
            }
        }
        Ok(Self { server, path, region, account })
    }

    /// Whether it is Amazon's by its name, which tells its region.
    pub(super) fn is_amazon(&self) -> bool {
        self.server
            .host_str()
            .is_some_and(|host| [".amazonaws.com", ".amazonaws.com.cn"].iter().any(|end| host.ends_with(end)))
    }

    /// The URL of a page of the list of objects: the one that the server called `next`, or the first.
    pub(super) fn list(&self, store: BucketStore, prefix: &str, next: Option<&str>) -> Result<Url, String> {
        let mut query = match store {
            BucketStore::S3 => vec![("encoding-type", "url"), ("list-type", "2"), ("max-keys", "1000")],
            BucketStore::Gcs => {
                let fields = "items(etag,generation,name,size),nextPageToken";
                vec![("fields", fields), ("maxResults", "1000")]
            }
            BucketStore::Azure => vec![("comp", "list"), ("maxresults", "1000"), ("restype", "container")],
        };
        let continued = match store {
            BucketStore::S3 => "continuation-token",
            BucketStore::Gcs => "pageToken",
            BucketStore::Azure => "marker",
        };
        query.extend(next.map(|next| (continued, next)));
        if !prefix.is_empty() {
            query.push(("prefix", prefix));
        }
        let path = if self.path.is_empty() { "/" } else { &self.path };
        self.url(path, &query)
    }

    /// The URL of an object, of one generation of it where that is known.
    pub(super) fn object(&self, store: BucketStore, key: &str, generation: u64) -> Result<Url, String> {
        let generation = generation.to_string();
        let (key, query) = match store {
            BucketStore::S3 | BucketStore::Azure => (encoded(key, true), Vec::new()),
            BucketStore::Gcs if generation == "0" => (encoded(key, false), vec![("alt", "media")]),
            BucketStore::Gcs => {
                (encoded(key, false), vec![("alt", "media"), ("ifGenerationMatch", generation.as_str())])
            }
        };
        self.url(&format!("{}/{key}", self.path), &query)
    }

    fn url(&self, path: &str, query: &[(&str, &str)]) -> Result<Url, String> {
        url(&self.server, path, query)
    }
}

fn server(endpoint: &str, insecure: bool) -> Result<Url, String> {
    let refused = |why: &str| Err(format!("the endpoint `{}` is refused: {why}", shown_endpoint(endpoint)));
    let Ok(url) = Url::parse(&server_url(endpoint, insecure)) else {
        return refused("it is not a host with an optional port");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return refused("it holds credentials");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refused("it has a query");
    }
    match url.scheme() {
        _ if !url.has_host() => refused("it is not a host with an optional port"),
        "https" => Ok(url),
        "http" if insecure => Ok(url),
        "http" => refused("it is not https: set `spec.insecure` to allow that"),
        _ => refused("want https"),
    }
}

/// Without what may be a password or a signature.
fn shown_endpoint(endpoint: &str) -> String {
    let end = endpoint.find(['?', '#']).unwrap_or(endpoint.len());
    let text = &endpoint[..end];
    shown(text.rsplit_once('@').map_or(text, |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(store: BucketStore, endpoint: &str, bucket: &str, region: Option<&str>) -> Result<String, String> {
        let region = region.map(str::to_owned);
        let request = BucketRequest { store, region, ..BucketRequest::new(endpoint, bucket) };
        let place = Place::of(&request, None)?;
        Ok(format!("{} {} {}", place.object(store, "a b/ü+%2e", 7)?, place.region, place.account))
    }

    #[test]
    fn buckets_are_where_each_store_has_them() {
        use BucketStore::{Azure, Gcs, S3};
        let key = "a%20b/%C3%BC%2B%252e";
        for (store, endpoint, region, expected) in [
            (S3, "minio.example:9000", None, format!("https://minio.example:9000/bucket/{key} us-east-1 ")),
            (S3, "https://minio.example", Some("x"), format!("https://minio.example/bucket/{key} x ")),
            (
                S3,
                "s3.amazonaws.com",
                None,
                format!("https://bucket.s3.us-east-1.amazonaws.com/{key} us-east-1 "),
            ),
            (
                S3,
                "s3.amazonaws.com",
                Some("eu-west-1"),
                format!("https://bucket.s3.eu-west-1.amazonaws.com/{key} eu-west-1 "),
            ),
            (
                S3,
                "s3.dualstack.eu-west-1.amazonaws.com",
                None,
                format!("https://bucket.s3.dualstack.eu-west-1.amazonaws.com/{key} eu-west-1 "),
            ),
            (
                S3,
                "s3-us-gov-west-1.amazonaws.com",
                None,
                format!("https://bucket.s3-us-gov-west-1.amazonaws.com/{key} us-gov-west-1 "),
            ),
            (S3, "s3.amazonaws.com.evil.example", None, {
                format!("https://s3.amazonaws.com.evil.example/bucket/{key} us-east-1 ")
            }),
            (Gcs, "storage.googleapis.com", None, {
                let key = key.replace('/', "%2F");
                let query = "?alt=media&ifGenerationMatch=7";
                format!("https://storage.googleapis.com/storage/v1/b/bucket/o/{key}{query} us-east-1 ")
            }),
            (Azure, "https://mine.blob.core.windows.net", None, {
                format!("https://mine.blob.core.windows.net/bucket/{key} us-east-1 mine")
            }),
            (Azure, "https://127.0.0.1:10000/devstoreaccount1/", None, {
                format!("https://127.0.0.1:10000/devstoreaccount1/bucket/{key} us-east-1 devstoreaccount1")
            }),
        ] {
            assert_eq!(of(store, endpoint, "bucket", region).unwrap(), expected);
        }
        let dotted = of(S3, "s3.amazonaws.com", "my.bucket", Some("eu-west-1")).unwrap();
        assert_eq!(dotted, format!("https://s3.eu-west-1.amazonaws.com/my.bucket/{key} eu-west-1 "));
    }

    #[test]
    fn endpoints_that_are_refused() {
        for (endpoint, why) in [
            ("http://minio.example", "spec.insecure"),
            ("ftp://minio.example", "want https"),
            ("", "not a host"),
            ("minio.example/path", "has a path"),
            ("https://minio.example/?x=y", "has a query"),
            ("https://user:hunter2@minio.example", "holds credentials"),
            ("https://minio.example/?sig=hunter2", "has a query"),
        ] {
            let error = of(BucketStore::S3, endpoint, "bucket", None).unwrap_err();
            assert!(error.contains(why) && !error.contains("hunter2"), "{endpoint}: {error}");
        }
        for bucket in ["", "..", "a/b", "a?b", "a b", "a%2e"] {
            assert!(of(BucketStore::S3, "minio.example", bucket, None).is_err(), "{bucket}");
        }
        assert!(of(BucketStore::S3, "minio.example", "bucket", Some("a b")).is_err());
    }

    #[test]
    fn keys_that_a_url_would_read_otherwise_are_refused() {
        let place = Place::of(&BucketRequest::new("minio.example", "bucket"), None).unwrap();
        for key in ["..", "a/../../other", "./a", "a/.."] {
            assert!(place.object(BucketStore::S3, key, 0).is_err(), "{key}");
        }
        let url = place.list(BucketStore::S3, "a/../b c", Some("x/y=&?")).unwrap();
        assert_eq!(
            url.as_str(),
            "https://minio.example/bucket?continuation-token=x%2Fy%3D%26%3F&encoding-type=url&list-type=2&max-keys=1000\
             &prefix=a%2F..%2Fb%20c"
        );
    }
}
