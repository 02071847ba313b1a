use super::*;

#[track_caller]
fn check(text: &str, expected: &str) {
    let (redacted, count) = redact(text);
    assert_eq!(redacted, expected);
    assert_eq!(count > 0, text != expected, "{text}");
    assert_eq!(redact(&redacted), (redacted.clone(), 0), "once is enough");
}

// S004-38
#[test]
fn passwords_are_replaced() {
    check("my password is hunter2", "my password is [redacted]");
    check("Password: Sommer2026! does not work", "Password: [redacted] does not work");
    check("password=swordfish", "password=[redacted]");
    check("pwd: abc", "pwd: [redacted]");
    check("the passcode was 'open sesame'", "the passcode was [redacted]");
    check(r#"{"password":"hunter2"}"#, r#"{"password":[redacted]}"#);
    check("I changed my password to Winter2025 yesterday", "I changed my password to [redacted] yesterday");
    check("my password hunter22 is refused", "my password [redacted] is refused");
    check("hunter2! is my password", "[redacted] is my password");
    check("passphrase is correct horse battery staple. Help", "passphrase is [redacted]. Help");
    check("api key: k_live_1234", "api key: [redacted]");
    check("Mein Passwort ist Geheim1", "Mein Passwort ist [redacted]");
}

#[test]
fn talking_of_passwords_is_allowed() {
    for text in [
        "I forgot my password",
        "My password is not working",
        "the password is wrong, and the PIN was refused",
        "Password reset needed",
        "What is my password?",
        "password expired on 2026-01-01",
        "I need a new passcode",
    ] {
        check(text, text);
    }
}

#[test]
fn one_time_codes_are_replaced() {
    check("my MFA code is 123456", "my MFA code is [redacted]");
    check("OTP 4711", "OTP [redacted]");
    check("the verification code I got is 12 34 56", "the verification code I got is [redacted]");
    check("the code is 123-456", "the code is [redacted]");
    check("pin: 0815", "pin: [redacted]");
    check("TAN=12345678", "TAN=[redacted]");
    check("493021 is my code", "[redacted] is my code");
    check("2FA code: 493 021 was refused", "2FA code: [redacted] was refused");
}

// S004-38
#[test]
fn short_names_of_secrets_are_known() {
    check("code: 123456", "code: [redacted]");
    check("The login page says code = 493 021", "The login page says code = [redacted]");
    check("passcode 4711", "passcode [redacted]");
    check("pass: hunter2", "pass: [redacted]");
    check("user ana pass=swordfish", "user ana pass=[redacted]");
    check("pw: hunter2", "pw: [redacted]");
    check("security code 123", "security code [redacted]");
    check("my CVV is 1234", "my CVV is [redacted]");
    check("token: abcdef123456", "token: [redacted]");
    check(r#"{"token":"abcdef123456"}"#, r#"{"token":[redacted]}"#);
    check("the token is 4711", "the token is [redacted]");
    check("access_token=abcdefghijklmnopqrst", "access_token=[redacted]");
    check("backup codes: 12345678", "backup codes: [redacted]");
    check("OTP \u{ff11}\u{ff12}\u{ff13}\u{ff14}\u{ff15}\u{ff16}", "OTP [redacted]");
    check("card \u{664}111 1111 1111 1111", "card [redacted]");
}

#[test]
fn other_numbers_stay() {
    for text in [
        "error code: 1603",
        "Zip code: 10115",
        "postcode: 10115",
        "exit code = 1234",
        "the token is expired",
        "token: invalid",
        "first pass: failed",
        "the pass is at the reception",
        "code: 12",
        "error code 1603 while installing",
        "the error code is 80070005",
        "1603 is the error code",
        "room 4711, building 12",
        "MFA is asking me every day since 2024",
        "Printer HP 4250 in office 123456",
        "called at 1700000000000",
        "order 12345678901234567890123",
    ] {
        check(text, text);
    }
}

#[test]
fn card_numbers_are_replaced() {
    check("card 4111 1111 1111 1111 was charged", "card [redacted] was charged");
    check("4111-1111-1111-1111", "[redacted]");
    check("5500005555555559", "[redacted]");
    check("amex 378282246310005", "amex [redacted]");
    check("4111 1111 1111 1111 12/27", "[redacted] 12/27");
    check("4111 1111 1111 1112", "4111 1111 1111 1112");
    // 13 and 19 digits are the limits.
    check("4222222222222", "[redacted]");
    check("6304000000000000000", "[redacted]");
    check("422222222222", "422222222222");
}

#[test]
fn serials_and_tokens_are_replaced() {
    check("serial number: C02XK1ZZJGH5", "serial number: [redacted]");
    check("S/N PF-1A2B3C", "S/N [redacted]");
    check("the serial cable is loose", "the serial cable is loose");
    check("Authorization: Bearer abcdef0123456789", "Authorization: Bearer [redacted]");
    check("key AKIAIOSFODNN7EXAMPLE leaked", "key [redacted] leaked");
    check("postgres://me:hush@db/x", "postgres://me:[redacted]@db/x");
    check("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\nhelp", "[redacted]\nhelp");
}

#[test]
fn any_text_is_survived() {
    for text in ["", "é", "password is", "password:", "\u{1f600} password is \u{1f600}\u{1f600}", "pin", "4"] {
        let _ = redact(text);
    }
    let long = "password ".repeat(2000);
    assert_eq!(redact(&long).0, long);
}
