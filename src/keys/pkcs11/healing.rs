//! Recovery actions by return code of a module: [`TABLE`].
//!
//! A request is repeated once per cause at most, which is safe because a signature has no side effect. A session that
//! ended because another session recovered the library does not count as a cause: this is known without a call, and the
//! session is reopened up to five times. Unknown codes count as device errors.

use cryptoki::error::{Error as BindingError, RvError as Code};

use crate::error::{Error, Kind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The session ended with its epoch or token.
    Ended,
    Session,
    Login,
    /// The token works, but the key is not on it.
    Missing,
    Token,
    Module,
    Device,
    Capacity,
    Request,
    Pin,
    /// An error of this server, not of the module.
    Ours,
}

/// The part that is discarded, and rebuilt by the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rebuild {
    Nothing,
    /// The session is reopened, which checks the login and looks for the key.
    Session,
    /// All sessions of the token end, and its label is looked for in all slots. While it is missing, all calls are
    /// rejected except for one after 1 s, 2 s … 30 s.
    Token,
    /// The library is initialized again, once for all its keys.
    Module,
}

pub(super) struct Row {
    pub(super) cause: Cause,
    /// The metric label; empty if nothing is rebuilt, or if another cause was counted.
    pub(super) word: &'static str,
    codes: &'static [Code],
    pub(super) rebuild: Rebuild,
    /// Maximum number of repetitions for this cause.
    pub(super) repeats: usize,
    answer: Kind,
}

const fn row(
    cause: Cause,
    word: &'static str,
    rebuild: Rebuild,
    repeats: usize,
    answer: Kind,
    codes: &'static [Code],
) -> Row {
    Row { cause, word, codes, rebuild, repeats, answer }
}

#[rustfmt::skip]
pub(super) const TABLE: [Row; 10] = [
    row(Cause::Ended, "", Rebuild::Session, 5, Kind::Unavailable, &[]),
    row(Cause::Session, "session", Rebuild::Session, 1, Kind::Unavailable, &[
        Code::SessionHandleInvalid, Code::SessionClosed, Code::OperationNotInitialized, Code::OperationActive,
    ]),
    // When the last session of a token closes, the login ends and private keys are invisible.
    row(Cause::Login, "login", Rebuild::Session, 1, Kind::Unavailable, &[
        Code::UserNotLoggedIn, Code::ObjectHandleInvalid, Code::KeyHandleInvalid,
    ]),
    // Looked for once more after another login. Initializing the module again would not help.
    row(Cause::Missing, "login", Rebuild::Session, 1, Kind::Unavailable, &[]),
    row(Cause::Token, "token", Rebuild::Token, 1, Kind::Unavailable, &[
        Code::TokenNotPresent, Code::DeviceRemoved, Code::TokenNotRecognized, Code::SlotIdInvalid,
    ]),
    row(Cause::Module, "module", Rebuild::Module, 1, Kind::Unavailable, &[
        Code::CryptokiNotInitialized,
    ]),
    row(Cause::Device, "device", Rebuild::Session, 1, Kind::Unavailable, &[
        Code::DeviceError, Code::DeviceMemory, Code::HostMemory, Code::GeneralError, Code::FunctionFailed,
    ]),
    // Opening a session waits for capacity. This error remains if no other session of this process is open.
    row(Cause::Capacity, "", Rebuild::Nothing, 0, Kind::Unavailable, &[
        Code::SessionCount,
    ]),
    row(Cause::Request, "", Rebuild::Nothing, 0, Kind::Invalid, &[
        Code::MechanismInvalid, Code::MechanismParamInvalid, Code::KeyTypeInconsistent, Code::KeyFunctionNotPermitted,
        Code::DataLenRange, Code::DataInvalid, Code::KeySizeRange, Code::FunctionNotSupported, Code::CurveNotSupported,
        Code::DomainParamsInvalid, Code::TemplateInconsistent, Code::TemplateIncomplete, Code::AttributeValueInvalid,
        Code::AttributeTypeInvalid, Code::TokenWriteProtected, Code::SessionReadOnly, Code::ArgumentsBad,
    ]),
    row(Cause::Pin, "", Rebuild::Nothing, 0, Kind::BadGateway, &[
        Code::PinIncorrect, Code::PinLocked, Code::PinExpired, Code::PinInvalid, Code::PinLenRange,
        Code::UserPinNotInitialized,
    ]),
];

const OURS: Row = row(Cause::Ours, "", Rebuild::Nothing, 0, Kind::Internal, &[]);

pub(super) fn row_of(cause: Cause) -> &'static Row {
    TABLE.iter().find(|row| row.cause == cause).unwrap_or(&OURS)
}

impl Cause {
    /// `true` if the cause means that the token is unreachable. Then another initialization of the module may help.
    pub(super) fn is_of_token(self) -> bool {
        row_of(self).repeats > 0 && !matches!(self, Self::Ended | Self::Missing)
    }
}

/// A failed call: the cause, and the error for the caller if recovery fails.
pub(super) struct Failure {
    pub(super) cause: Cause,
    pub(super) error: Error,
}

impl Failure {
    /// Creates a failure that this server detected itself, with a `cause` of matching recovery.
    pub(super) fn new(cause: Cause, text: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self { cause, error: Error::new(row_of(cause).answer, text) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { cause: Cause::Ours, error }
    }
}

impl From<BindingError> for Failure {
    fn from(error: BindingError) -> Self {
        match error {
            BindingError::Pkcs11(code, function) => {
                let row = TABLE.iter().find(|row| row.codes.contains(&code)).unwrap_or(row_of(Cause::Device));
                Self::new(row.cause, format!("pkcs11 module: C_{function:?}: {}", name(code)))
            }
            BindingError::NullFunctionPointer => {
                Self::new(Cause::Request, "pkcs11 module: lacks a function that is needed")
            }
            other => Self {
                cause: Cause::Device,
                error: Error::unavailable("pkcs11 module: gave an answer that cannot be read", other),
            },
        }
    }
}

/// The standard name of a return code: `CKR_DEVICE_ERROR` for `DeviceError`.
fn name(code: Code) -> String {
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
    fn no_code_is_in_two_rows_and_names_are_the_standards() {
        let codes: Vec<Code> = TABLE.iter().flat_map(|row| row.codes).copied().collect();
        for (n, code) in codes.iter().enumerate() {
            assert!(!codes[..n].contains(code), "{code:?}");
        }
        assert_eq!(name(Code::SessionHandleInvalid), "CKR_SESSION_HANDLE_INVALID");
        assert_eq!(name(Code::PinIncorrect), "CKR_PIN_INCORRECT");
        assert_eq!(name(Code::VendorDefined(0x8000_0001)), "CKR 0x80000001");
    }

    #[test]
    fn what_is_repeated_is_built_up_before_and_has_a_word() {
        for row in &TABLE {
            assert_eq!(row.repeats > 0, row.rebuild != Rebuild::Nothing, "{:?}", row.cause);
            let counts = row.repeats > 0 && row.cause != Cause::Ended;
            assert_eq!(counts, !row.word.is_empty(), "{:?}", row.cause);
        }
    }
}
