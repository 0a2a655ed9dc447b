//! What is asked of a registry to find an image's signatures: who refers to it, and what lies at tags that are named by its digest.

use http::Method;
use http::header::CONTENT_TYPE;
use roadstead_model::Digest;

use super::error::OciError;
use super::wire::{Bound, Sink, Wire, next_page};
use crate::attempt::Answer;
use crate::tree::Measure;

/// What a list of referrers is.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Sigstore's bundles, as they stand in a query.
const BUNDLES: &str = "application/vnd.dev.sigstore.bundle.v0.3%2Bjson";
/// Pages of a list of referrers.
const MOST_PAGES: usize = 8;

impl Wire<'_> {
    /// What refers to an image, and may be a bundle: pages of a list. Of registries that have no such lists it is what lies at
    /// the tag that stands in for them; none where nothing lies there.
    pub(super) async fn referrers(&mut self, image: Digest) -> Result<Vec<Answer>, OciError> {
        self.referrers_of_kind(image, BUNDLES).await
    }

    /// The same of another kind, as it stands in a query.
    pub(super) async fn referrers_of_kind(
        &mut self,
        image: Digest,
        kind: &str,
    ) -> Result<Vec<Answer>, OciError> {
        self.stop.enter("looking for signatures");
        let first = self.at(&format!("referrers/{image}?artifactType={kind}"))?;
        let (mut page, mut pages) = (first.clone(), Vec::new());
        while pages.len() < MOST_PAGES {
            let response = match self.send(&Method::GET, &page, INDEX, "list of referrers").await {
                Ok(response) => response,
                // It has no such lists.
                Err(OciError::NotFound { .. }) if pages.is_empty() => return self.stand_in(image).await,
                Err(OciError::Status { status: 400 | 405 | 406 | 501, .. }) if pages.is_empty() => {
                    return self.stand_in(image).await;
                }
                Err(error) => return Err(error),
            };
            let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
            if pages.is_empty() && kind.trim() != INDEX {
                return self.stand_in(image).await;
            }
            let next = next_page(response.headers());
            let bound = Bound { measure: Measure::ManifestBytes, limit: self.request.limits.manifest_bytes };
            let mut sink = Sink::default();
            self.receive(response, &mut sink, &bound, None).await?;
            pages.push(self.answer(sink).await?);
            let Some(next) = next else { break };
            let next =
                page.join(&next).map_err(|_| self.corrupt("its list of referrers goes on at no URL"))?;
            if next.origin() != first.origin() || next.path() != first.path() || next == page {
                return Err(self.corrupt("its list of referrers goes on elsewhere"));
            }
            page = next;
        }
        Ok(pages)
    }

    async fn stand_in(&mut self, image: Digest) -> Result<Vec<Answer>, OciError> {
        Ok(self.at_tag(&format!("sha256-{}", image.hex())).await?.into_iter().collect())
    }

    /// The manifest of an image's signatures of the old form, if there are any.
    pub(super) async fn old_signatures(&mut self, image: Digest) -> Result<Option<Answer>, OciError> {
        self.at_tag(&format!("sha256-{}.sig", image.hex())).await
    }

    async fn at_tag(&mut self, tag: &str) -> Result<Option<Answer>, OciError> {
        match self.manifest(tag, None).await {
            Ok((_, answer)) => Ok(Some(answer)),
            Err(OciError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
