//! Who may refer to what in another namespace: pure functions, asked at each reconciliation and when a reference is written. All is
//! denied that nobody gave leave for.

/// What is known of a reference to another namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leave {
    /// Whoever wrote it had the right to get what it names, or a person gave what made the object that leave.
    pub written: bool,
    /// A ReferenceGrant in the other namespace names it.
    pub granted: bool,
}

/// What the two namespaces alone decide, whoever gave leave: a reference within a namespace is allowed, and where the operator turned
/// references across namespaces off (`across` is false), any other is refused, as in Flux. None where it depends on leave.
pub fn refer_by_namespace(from: &str, to: &str, across: bool) -> Option<Result<(), String>> {
    if from == to {
        return Some(Ok(()));
    }
    let off = || Err("is in another namespace, and the hub runs with --no-cross-namespace-refs".to_owned());
    (!across).then(off)
}

/// Whether something in namespace `from` of the hub may refer to something in namespace `to`, another one, with this leave.
///
/// # Errors
/// Why not, for a condition: what follows the name of what is referred to.
pub fn may_refer(from: &str, to: &str, leave: Leave) -> Result<(), String> {
    if leave.written || leave.granted {
        return Ok(());
    }
    Err(format!(
        "is in another namespace: a ReferenceGrant in namespace '{to}' has to allow namespace '{from}' to refer to it, or \
         somebody who may get it has to write the reference"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_to_another_namespace_needs_leave() {
        let none = Leave::default();
        for across in [false, true] {
            assert_eq!(refer_by_namespace("a", "a", across), Some(Ok(())));
        }
        // The operator's word is the last one.
        let why = refer_by_namespace("a", "b", false).unwrap().unwrap_err();
        assert!(why.contains("--no-cross-namespace-refs"), "{why}");
        assert_eq!(refer_by_namespace("a", "b", true), None);
        let why = may_refer("a", "b", none).unwrap_err();
        assert!(why.contains("ReferenceGrant in namespace 'b'"), "{why}");
        for leave in [Leave { written: true, ..none }, Leave { granted: true, ..none }] {
            assert_eq!(may_refer("a", "b", leave), Ok(()));
        }
    }
}
