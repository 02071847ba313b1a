use super::*;

#[track_caller]
fn check(text: &str, number: &str, date: &str, total: &str, currency: &str, vendor: &str) {
    let some = |text: &str| Some(text.to_owned());
    let expected = Fields {
        number: some(number),
        date: some(date),
        total: some(total),
        currency: some(currency),
        vendor: some(vendor),
    };
    assert_eq!(recognise(text), expected, "{text}");
}

#[test]
fn labels_and_values_in_one_line() {
    check(
        "ACME Tools Ltd.\n12 High Street, London\n\nINVOICE\nInvoice Number: INV-2026-0042\nInvoice Date: 15 March 2026\n\
         Due Date: 14 April 2026\nBill To: Jane Doe\nHammer 2 x 12.50 25.00\nSubtotal 25.00\nVAT 20% 5.00\nTotal: GBP 30.00",
        "INV-2026-0042",
        "2026-03-15",
        "30.00",
        "GBP",
        "ACME Tools Ltd.",
    );
}

#[test]
fn a_german_invoice() {
    check(
        "Musterfirma GmbH\nHauptstra\u{df}e 1, 10115 Berlin\n\nRechnung\nRechnungsnummer: 2026-0815\nRechnungsdatum: 31.01.2026\n\
         Lieferdatum: 28.01.2026\nPos. Artikel Menge Preis\n1 Schraube 100 1.000,00\nZwischensumme 1.000,00 EUR\n\
         MwSt 19 % 190,00 EUR\nGesamtbetrag 1.190,00 EUR",
        "2026-0815",
        "2026-01-31",
        "1190.00",
        "EUR",
        "Musterfirma GmbH",
    );
}

#[test]
fn headings_above_their_values() {
    check(
        "INVOICE\n\nFrom:                     Bill to:\nNorthwind Traders Inc.    Contoso LLC\n1 Main St                 2 Oak Ave\n\n\
         Invoice #     Date          Due date\n10077         03/04/2026    04/03/2026\n\nService   Amount\nConsulting   $1,200.00\n\
         Amount Due\n$1,296.00",
        "10077",
        "2026-03-04",
        "1296.00",
        "USD",
        "Northwind Traders Inc.",
    );
}

#[test]
fn the_title_carries_the_number() {
    check(
        "Globex Corporation    INVOICE A-1207\nDate: 2026-02-09\nWidget    3    10.00    30.00\nGrand total \u{20ac} 35,70",
        "A-1207",
        "2026-02-09",
        "35.70",
        "EUR",
        "Globex Corporation",
    );
}

#[test]
fn what_is_not_there_is_left_out() {
    assert_eq!(recognise(""), Fields::default());
    assert_eq!(recognise("12 34\n---"), Fields::default());
    let partly = recognise("Invoice No: 7\nTotal: 12.00");
    assert_eq!((partly.number.as_deref(), partly.total.as_deref()), (Some("7"), Some("12.00")));
    assert_eq!((partly.date, partly.currency, partly.vendor), (None, None, None));
}

#[test]
fn a_line_that_says_something_else_is_no_vendor() {
    for text in [
        "Rechnung Nr. 4711\nDatum: 16.11.2026\nGesamtbetrag: 1.234,56 EUR",
        "Rechnungsnummer 4711\nRechnungsdatum 16.11.2026\nGesamtbetrag 1.234,56 EUR",
        "Facture N\u{b0} 4711\nLe 16.11.2026\nNet \u{e0} payer 1.234,56 EUR",
        "Rechnung Nr. 4711\nKundennummer: K-17\nDatum: 16.11.2026\nZu zahlen\n1.234,56 EUR",
    ] {
        let fields = recognise(text);
        assert_eq!((fields.number.as_deref(), fields.date.as_deref()), (Some("4711"), Some("2026-11-16")), "{text}");
        assert_eq!((fields.total.as_deref(), fields.vendor), (Some("1234.56"), None), "{text}");
    }
    let fields = recognise("Gesamtbetrag: 1.234,56 EUR\nTotal Energies SE\nFirma: Globex GmbH");
    assert_eq!(fields.vendor.as_deref(), Some("Globex GmbH"));
    let fields = recognise("Datum: 16.11.2026\nGlobex GmbH\nGesamtbetrag: 1.234,56 EUR");
    assert_eq!(fields.vendor.as_deref(), Some("Globex GmbH"));
}

#[test]
fn a_due_date_is_not_the_invoices() {
    let fields = recognise("Acme\nDue date: 2026-05-01\nDate: 2026-04-01\nInvoice date below\n");
    assert_eq!(fields.date.as_deref(), Some("2026-04-01"));
}

#[test]
fn any_text_is_survived() {
    for text in ["Invoice No", "Total", "Date:", "From:", "\u{20ac}", "Total \u{20ac}\u{20ac}", "\u{1f600} Total 5"] {
        let _ = recognise(text);
    }
}
