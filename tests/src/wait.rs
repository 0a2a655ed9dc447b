//! Waiting for what comes about.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Tries again and again until it succeeds; after `patience` fails with the last reason.
///
/// # Errors
/// The last error, and what was waited for.
pub async fn eventually<T, F>(what: &str, patience: Duration, mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let deadline = Instant::now() + patience;
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= deadline => {
                return Err(error).with_context(|| format!("within {patience:?}, not: {what}"));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[tokio::test]
    async fn gives_the_value_or_the_last_reason() {
        let mut tries = 0;
        let value = eventually("three", Duration::from_secs(10), || {
            tries += 1;
            let seen = tries;
            async move { if seen < 3 { bail!("{seen}") } else { Ok(seen) } }
        });
        assert_eq!(value.await.unwrap(), 3);
        let error = eventually("the moon", Duration::ZERO, || async {
            Result::<()>::Err(anyhow::anyhow!("no moon"))
        });
        let text = format!("{:#}", error.await.unwrap_err());
        assert!(text.contains("the moon: no moon"), "{text}");
    }
}
