"""Makes invoices to read: `render.py DIRECTORY` writes one file for each layout, and some that are no good."""

import os
import sys

from PIL import Image, ImageDraw, ImageFont
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen import canvas

LAYOUTS = {
    "plain": [
        (80, 80, 44, "ACME Tools Ltd."),
        (80, 140, 30, "12 High Street, London"),
        (80, 260, 48, "INVOICE"),
        (80, 350, 32, "Invoice Number: INV-2026-0042"),
        (80, 400, 32, "Invoice Date: 15 March 2026"),
        (80, 450, 32, "Due Date: 14 April 2026"),
        (80, 560, 32, "Hammer"),
        (900, 560, 32, "25.00"),
        (80, 620, 32, "Subtotal"),
        (900, 620, 32, "25.00"),
        (80, 680, 32, "VAT 20%"),
        (900, 680, 32, "5.00"),
        (80, 760, 36, "Total: GBP 30.00"),
    ],
    "columns": [
        (80, 80, 40, "Northwind Traders Inc."),
        (820, 80, 48, "INVOICE"),
        (80, 140, 28, "1 Main Street, Springfield"),
        (80, 300, 32, "Invoice #"),
        (500, 300, 32, "Date"),
        (900, 300, 32, "Due date"),
        (80, 350, 32, "10077"),
        (500, 350, 32, "03/04/2026"),
        (900, 350, 32, "04/03/2026"),
        (80, 480, 32, "Consulting"),
        (900, 480, 32, "$1,200.00"),
        (80, 600, 36, "Amount Due"),
        (900, 600, 36, "$1,296.00"),
    ],
    "german": [
        (80, 80, 44, "Musterfirma GmbH"),
        (80, 140, 30, "Hauptweg 1, 10115 Berlin"),
        (80, 260, 48, "Rechnung"),
        (80, 350, 32, "Rechnungsnummer: 2026-0815"),
        (80, 400, 32, "Rechnungsdatum: 31.01.2026"),
        (80, 450, 32, "Lieferdatum: 28.01.2026"),
        (80, 560, 32, "Zwischensumme"),
        (900, 560, 32, "1.000,00 EUR"),
        (80, 620, 32, "MwSt 19 %"),
        (900, 620, 32, "190,00 EUR"),
        (80, 700, 36, "Gesamtbetrag"),
        (900, 700, 36, "1.190,00 EUR"),
    ],
    "title": [
        (80, 80, 44, "Globex Corporation"),
        (80, 180, 44, "INVOICE A-1207"),
        (80, 300, 32, "Date: 2026-02-09"),
        (80, 420, 32, "Widget"),
        (900, 420, 32, "30.00"),
        (80, 520, 36, "Grand total USD 35.70"),
    ],
}
SIZE = (1300, 900)


def picture(lines):
    image = Image.new("L", SIZE, 255)
    draw = ImageDraw.Draw(image)
    for x, y, size, text in lines:
        draw.text((x, y), text, font=ImageFont.load_default(size), fill=0)
    return image


def document(path, pages):
    pdf = canvas.Canvas(path, pagesize=A4)
    scale = (A4[0] - 60) / SIZE[0]
    for lines in pages:
        for x, y, size, text in lines:
            pdf.setFont("Helvetica", size * scale)
            pdf.drawString(30 + x * scale, A4[1] - 40 - (y + size) * scale, text)
        pdf.showPage()
    pdf.save()


def main(directory):
    where = lambda name: os.path.join(directory, name)
    for name, lines in LAYOUTS.items():
        picture(lines).save(where(name + ".png"))
        document(where(name + ".pdf"), [lines])
    picture(LAYOUTS["plain"]).save(where("plain.jpg"), quality=92)
    picture(LAYOUTS["plain"]).save(where("plain.tif"))
    # As a phone stores what it saw: turned, with or without a note that says so.
    turned = lambda name, degrees: picture(LAYOUTS[name]).rotate(degrees, expand=True)
    turned("plain", 90).save(where("turned-90.png"))
    turned("columns", 180).save(where("turned-180.png"))
    turned("plain", 270).save(where("turned-270.tif"))
    note = Image.Exif()
    note[0x0112] = 6
    turned("title", 90).save(where("noted.jpg"), quality=92, exif=note)
    scanned = picture(LAYOUTS["title"]).rotate(90, expand=True)
    scanned.convert("RGB").save(where("turned.pdf"), resolution=150)
    document(where("two-pages.pdf"), [LAYOUTS["title"], [(80, 80, 40, "Terms and conditions")]])
    document(where("200-pages.pdf"), [[(80, 80, 40, "Page")]] * 200)
    # Small on disk, large once it is unpacked.
    Image.new("1", (30000, 30000), 1).save(where("bomb.png"))
    with open(where("plain.png"), "rb") as good, open(where("damaged.png"), "wb") as bad:
        bad.write(good.read()[:2000])
    with open(where("plain.pdf"), "rb") as good, open(where("damaged.pdf"), "wb") as bad:
        bad.write(good.read()[:300])
    with open(where("empty.pdf"), "wb") as bad:
        bad.write(b"%PDF-1.4\n")


main(sys.argv[1])
