//! Recovery actions by return code of a module: [`RECOVERY_RULES`].
//!
//! A request is repeated at most once per cause, which is safe because a signature has no side effect. A session may
//! also end because another session recovered the library. This server detects that without a call of the module, and
//! reopens the session up to five times. Unknown codes count as device errors.

use cryptoki::error::{Error as BindingError, RvError as Code};

use crate::error::{Error, Kind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pkcs11FailureCause {
    /// The session has ended, because its module was initialized again or its token was lost.
    SessionEnded,
    Session,
    Login,
    /// The token works, but the key is not on it.
    KeyMissing,
    Token,
    Module,
    Device,
    Capacity,
    Request,
    Pin,
    /// An error that this server detected itself.
    Internal,
}

/// The session, token or module state that is discarded after a failure, and rebuilt by the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecoveryScope {
    Nothing,
    /// The session is reopened, which checks the login and looks for the key.
    Session,
    /// All sessions of the token end, and its label is looked for in all slots. While the token is missing, all calls
    /// are rejected, except for one attempt after 1 s, 2 s … 30 s.
    Token,
    /// The library is initialized again, once for all its keys.
    Module,
}

pub(super) struct RecoveryRule {
    pub(super) cause: Pkcs11FailureCause,
    /// The metric label; empty if nothing is rebuilt, or if the recovery was counted for another cause already.
    pub(super) metric_label: &'static str,
    codes: &'static [Code],
    pub(super) rebuild: RecoveryScope,
    /// Maximum number of times that a request is repeated for this cause.
    pub(super) repeats: usize,
    error_kind: Kind,
}

const fn recovery_rule(
    cause: Pkcs11FailureCause,
    metric_label: &'static str,
    rebuild: RecoveryScope,
    repeats: usize,
    error_kind: Kind,
    codes: &'static [Code],
) -> RecoveryRule {
    RecoveryRule { cause, metric_label, codes, rebuild, repeats, error_kind }
}

#[rustfmt::skip]
pub(super) const RECOVERY_RULES: [RecoveryRule; 10] = [
    recovery_rule(Pkcs11FailureCause::SessionEnded, "", RecoveryScope::Session, 5, Kind::Unavailable, &[]),
    recovery_rule(Pkcs11FailureCause::Session, "session", RecoveryScope::Session, 1, Kind::Unavailable, &[
        Code::SessionHandleInvalid, Code::SessionClosed, Code::OperationNotInitialized, Code::OperationActive,
    ]),
    // When the last session of a token closes, the login ends, and private keys become invisible.
    recovery_rule(Pkcs11FailureCause::Login, "login", RecoveryScope::Session, 1, Kind::Unavailable, &[
        Code::UserNotLoggedIn, Code::ObjectHandleInvalid, Code::KeyHandleInvalid,
    ]),
    // After a new login, the key is looked up once more. Initializing the module again would not help.
    recovery_rule(Pkcs11FailureCause::KeyMissing, "login", RecoveryScope::Session, 1, Kind::Unavailable, &[]),
    recovery_rule(Pkcs11FailureCause::Token, "token", RecoveryScope::Token, 1, Kind::Unavailable, &[
        Code::TokenNotPresent, Code::DeviceRemoved, Code::TokenNotRecognized, Code::SlotIdInvalid,
    ]),
    recovery_rule(Pkcs11FailureCause::Module, "module", RecoveryScope::Module, 1, Kind::Unavailable, &[
        Code::CryptokiNotInitialized,
    ]),
    recovery_rule(Pkcs11FailureCause::Device, "device", RecoveryScope::Session, 1, Kind::Unavailable, &[
        Code::DeviceError, Code::DeviceMemory, Code::HostMemory, Code::GeneralError, Code::FunctionFailed,
    ]),
    // Opening a session waits for a free one, so this error remains only if no other session of this process is open.
    recovery_rule(Pkcs11FailureCause::Capacity, "", RecoveryScope::Nothing, 0, Kind::Unavailable, &[
        Code::SessionCount,
    ]),
    recovery_rule(Pkcs11FailureCause::Request, "", RecoveryScope::Nothing, 0, Kind::Invalid, &[
        Code::MechanismInvalid, Code::MechanismParamInvalid, Code::KeyTypeInconsistent, Code::KeyFunctionNotPermitted,
        Code::DataLenRange, Code::DataInvalid, Code::KeySizeRange, Code::FunctionNotSupported, Code::CurveNotSupported,
        Code::DomainParamsInvalid, Code::TemplateInconsistent, Code::TemplateIncomplete, Code::AttributeValueInvalid,
        Code::AttributeTypeInvalid, Code::TokenWriteProtected, Code::SessionReadOnly, Code::ArgumentsBad,
    ]),
    recovery_rule(Pkcs11FailureCause::Pin, "", RecoveryScope::Nothing, 0, Kind::BadGateway, &[
        Code::PinIncorrect, Code::PinLocked, Code::PinExpired, Code::PinInvalid, Code::PinLenRange,
        Code::UserPinNotInitialized,
    ]),
];

const INTERNAL_RULE: RecoveryRule =
    recovery_rule(Pkcs11FailureCause::Internal, "", RecoveryScope::Nothing, 0, Kind::Internal, &[]);

pub(super) fn rule_for(cause: Pkcs11FailureCause) -> &'static RecoveryRule {
    RECOVERY_RULES.iter().find(|rule| rule.cause == cause).unwrap_or(&INTERNAL_RULE)
}

impl Pkcs11FailureCause {
    /// `true` if the cause means that the token is unreachable, so that another initialization of the module may help.
    pub(super) fn is_token_unreachable(self) -> bool {
        rule_for(self).repeats > 0 && !matches!(self, Self::SessionEnded | Self::KeyMissing)
    }
}

/// A failed call: the cause, and the error for the caller if recovery fails.
pub(super) struct Pkcs11Failure {
    pub(super) cause: Pkcs11FailureCause,
    pub(super) error: Error,
}

impl Pkcs11Failure {
    /// Creates a failure that this server detected itself. `cause` selects the recovery.
    pub(super) fn new(cause: Pkcs11FailureCause, text: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self { cause, error: Error::new(rule_for(cause).error_kind, text) }
    }
}

impl From<Error> for Pkcs11Failure {
    fn from(error: Error) -> Self {
        Self { cause: Pkcs11FailureCause::Internal, error }
    }
}

impl From<BindingError> for Pkcs11Failure {
    fn from(error: BindingError) -> Self {
        match error {
            BindingError::Pkcs11(code, function) => {
                let rule = RECOVERY_RULES
                    .iter()
                    .find(|rule| rule.codes.contains(&code))
                    .unwrap_or(rule_for(Pkcs11FailureCause::Device));
                Self::new(rule.cause, format!("pkcs11 module: C_{function:?}: {}", return_code_name(code)))
            }
            BindingError::NullFunctionPointer => {
                Self::new(Pkcs11FailureCause::Request, "pkcs11 module: lacks a function that this server requires")
            }
            other => Self {
                cause: Pkcs11FailureCause::Device,
                error: Error::unavailable("pkcs11 module: returned a value that cannot be parsed", other),
            },
        }
    }
}

/// The standard name of a return code: `CKR_DEVICE_ERROR` for `DeviceError`.
fn return_code_name(code: Code) -> String {
    match code {
        Code::VendorDefined(number) | Code::UnknownErrorCode(number) => format!("CKR {number:#x}"),
        _ => format!("{code:?}").chars().fold("CKR".to_owned(), |mut name, letter| {
            if letter.is_ascii_uppercase() {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
            name
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_codes_are_unique_and_named_as_in_the_standard() {
        let codes: Vec<Code> = RECOVERY_RULES.iter().flat_map(|rule| rule.codes).copied().collect();
        for (n, code) in codes.iter().enumerate() {
            assert!(!codes[..n].contains(code), "{code:?}");
        }
        assert_eq!(return_code_name(Code::SessionHandleInvalid), "CKR_SESSION_HANDLE_INVALID");
        assert_eq!(return_code_name(Code::PinIncorrect), "CKR_PIN_INCORRECT");
        assert_eq!(return_code_name(Code::VendorDefined(0x8000_0001)), "CKR 0x80000001");
    }

    #[test]
    fn retried_failures_rebuild_a_scope_and_have_a_name() {
        for rule in &RECOVERY_RULES {
            assert_eq!(rule.repeats > 0, rule.rebuild != RecoveryScope::Nothing, "{:?}", rule.cause);
            let counts = rule.repeats > 0 && rule.cause != Pkcs11FailureCause::SessionEnded;
            assert_eq!(counts, !rule.metric_label.is_empty(), "{:?}", rule.cause);
        }
    }
}
