//! Servers that speak Git's old protocol say in the line of their first reference which references are symbolic. gix panics where one of those
//! is not among the references that follow. So it is not told: what a reference points to is listed anyway, and nothing else is asked.

/// How a capability begins that tells of a symbolic reference.
const NAME: &[u8] = b"symref=";

/// Has a greeting not tell of symbolic references, while it comes: as many bytes as there were, which say something that nobody knows.
#[derive(Debug, Default)]
pub(super) struct Symrefs {
    /// Whether there was a zero byte: capabilities follow one.
    begun: bool,
    /// Where a capability began, how many bytes of the name have come since.
    come: Option<usize>,
}

impl Symrefs {
    /// The next bytes of a greeting.
    pub(super) fn hide_in(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            if matches!(*byte, 0 | b' ') {
                self.begun |= *byte == 0;
                self.come = self.begun.then_some(0);
                continue;
            }
            let come = self.come.take();
            if come.and_then(|come| NAME.get(come)) == Some(&*byte) {
                self.come = come.map(|come| come + 1);
            }
            if self.come == Some(NAME.len()) {
                *byte = b'-';
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::attempt::Line;
    use crate::git::reader::{self, Answered, Order, Pointed, Reply};
    use crate::git::wire::{Ask, What};
    use crate::git::{GitReference, GitRequest};

    #[test]
    fn what_is_symbolic_is_hidden_however_it_comes_and_nothing_else_is() {
        let before =
            b"1234 symref=a\0symref=HEAD:x symref symrefs=1 xsymref=2 symref=B:y\nsymref=3 symref=symref=";
        let after =
            b"1234 symref=a\0symref-HEAD:x symref symrefs=1 xsymref=2 symref-B:y\nsymref=3 symref-symref=";
        for size in 1..before.len() {
            let mut bytes = before.to_vec();
            let mut symrefs = Symrefs::default();
            bytes.chunks_mut(size).for_each(|chunk| symrefs.hide_in(chunk));
            assert_eq!(bytes.escape_ascii().to_string(), after.escape_ascii().to_string(), "by {size}");
        }
    }

    #[test]
    fn a_symbolic_reference_that_is_not_listed_is_passed_over() {
        let line = |text: &str| format!("{:04x}{text}", text.len() + 4);
        let id = "1".repeat(40);
        let greeting = [
            line("# service=git-upload-pack\n"),
            "0000".to_owned(),
            line(&format!(
                "{id} HEAD\0multi_ack_detailed side-band-64k shallow symref=ELSEWHERE:refs/heads/main agent=git/2\n"
            )),
            line(&format!("{id} refs/heads/main\n")),
            "0000".to_owned(),
        ];
        let greeting = greeting.concat().into_bytes();
        let way = Line::new(move |question| {
            let from = question.get(2..10).map(|from| u64::from_le_bytes(from.try_into().unwrap())).unwrap();
            Ok(greeting.get(usize::try_from(from).unwrap()..).unwrap_or_default().to_vec())
        });
        let mut request = GitRequest::new("https://git.test/app.git".to_owned());
        request.reference = GitReference::Branch("main".to_owned());
        let headings = vec!["application/x-git-upload-pack-advertisement".to_owned()];
        let order = Order { headings, ..Order::plain(&request) };
        let folder = tempfile::tempdir().unwrap();
        let reply = reader::read(&order, folder.path(), &way, &AtomicBool::new(false));
        let Answered { reply, learned } = serde_json::from_slice(&reply).unwrap();
        assert_eq!(learned, Some(Pointed { commit: id.clone(), tag: None }));
        let Reply::Ask(Ask::UploadPack { what: What::Pack(pack), .. }) = reply else { panic!("{reply:?}") };
        assert_eq!(pack, id);
    }
}
