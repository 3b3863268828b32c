//! What is done for which return code of a module: the whole of it is [`TABLE`].
//!
//! A request is repeated once for each cause at most: a signature has no side effect. That a session has ended
//! because others had to build the library up again is no cause of its own, and is known without asking the
//! module. What is in no row counts as trouble of the device.

use cryptoki::error::{Error as BindingError, RvError as Code};

use crate::error::{Error, Kind};

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Ended with its epoch or its token.
    Ended,
    Session,
    Login,
    /// The token works, and the key is not on it.
    Missing,
    Token,
    Module,
    Device,
    Capacity,
    Request,
    Pin,
    /// Found out here: no module said so.
    Ours,
}

/// What is given up, and built up again by the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rebuild {
    Nothing,
    /// Session, login check, and the key is looked for.
    Session,
    /// All sessions of the token; its label is looked for in all slots. While it is not there every call is
    /// refused, but one after 1 s, 2 s … 30 s.
    Token,
    /// The library is initialised again, once for all keys on it.
    Module,
}

/// One row: causes, what is given up, how often the request is repeated, and what its caller gets otherwise.
pub(super) struct Row {
    pub(super) cause: Cause,
    /// The label of metrics; empty where nothing is built up, and where that was counted as another cause.
    pub(super) word: &'static str,
    codes: &'static [Code],
    pub(super) rebuild: Rebuild,
    /// How often the request is repeated for this cause.
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
    // When all sessions of a token have closed, its login is lost and private keys cannot be seen.
    row(Cause::Login, "login", Rebuild::Session, 1, Kind::Unavailable, &[
        Code::UserNotLoggedIn, Code::ObjectHandleInvalid, Code::KeyHandleInvalid,
    ]),
    // Looked for once more, with another login. No other initialisation of the module brings it back.
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
    // Waited for where sessions are opened; this is what is left when no other session of ours is open.
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

/// The row of what was found out here: nothing is done about it.
const OURS: Row = row(Cause::Ours, "", Rebuild::Nothing, 0, Kind::Internal, &[]);

/// The row of a cause.
pub(super) fn row_of(cause: Cause) -> &'static Row {
    TABLE.iter().find(|row| row.cause == cause).unwrap_or(&OURS)
}

impl Cause {
    /// Whether it shows that a token is out of reach, and not that others have built something up or that a key is
    /// missing: then to initialise the module again may help.
    pub(super) fn is_of_token(self) -> bool {
        row_of(self).repeats > 0 && !matches!(self, Self::Ended | Self::Missing)
    }
}

/// A call that failed: why, and what its caller gets when nothing helps.
pub(super) struct Failure {
    pub(super) cause: Cause,
    pub(super) error: Error,
}

impl Failure {
    /// Found out here, of a `cause` whose reaction fits.
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

/// The name of a return code in the standard: `CKR_DEVICE_ERROR` of `DeviceError`.
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
