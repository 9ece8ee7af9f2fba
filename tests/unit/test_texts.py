"""Texts of web pages, Markdown, PDF and tables as people have them: what is read, and in which encoding."""

from __future__ import annotations

import pytest
from test_loose_files import pdf, read, word

from zerodr.collections.cutting import Block, cut
from zerodr.collections.texts import Unreadable, blocks_of, decode
from zerodr.config.loose_files import Cut


@pytest.mark.parametrize(
    ("page", "blocks"),
    [
        ("<h2><button>Can I pay <b>by card</b>?</button></h2><p>Yes.", [(2, "Can I pay by card?"), (0, "Yes.")]),
        ("<dl><dt> <button>By card?</button></dt><dd>Yes.</dd></dl>", [(0, "By card?"), (0, "Yes.")]),
        ("<h2>Cards<button>copy link</button></h2><p>Yes.<button>more</button>", [(2, "Cards"), (0, "Yes.")]),
        ("<h2><button aria-controls=a>By card?</button></h2><p id=a hidden>Yes.", [(2, "By card?"), (0, "Yes.")]),
        ("<p>Ask.<div hidden=until-found>Yes.</div><div hidden>Cookies</div>", [(0, "Ask."), (0, "Yes.")]),
        ("<div role=tabpanel>npm</div><div role=tabpanel hidden>yarn</div>", [(0, "npm"), (0, "yarn")]),
        ("<body hidden><p>Yes.</p></body>", [(0, "Yes.")]),
        ("<html aria-hidden=true><body aria-hidden=true><p>Yes.</p></body></html>", [(0, "Yes.")]),
    ],
)
def test_questions_that_fold_and_pages_that_hide_are_text(page, blocks):
    assert blocks_of(".html", page.encode()) == ([Block(*block) for block in blocks], "")


def test_cells_of_a_row_are_one_line_though_word_and_wikis_have_paragraphs_in_them():
    page = b"<table><tr><th><p>Drug</p><th><p>Dose</p><tr><td>a<p><b>b</b>c</p>d<td><p>5 mg</p><p>daily</p></table>"
    assert blocks_of(".html", page)[0] == [Block(0, "Drug | Dose"), Block(0, "a bc d"), *_paragraphs("5 mg", "daily")]


def _paragraphs(*texts: str) -> list[Block]:
    return [Block(0, text) for text in texts]


def test_a_word_of_a_heading_stays_one_word_and_its_lines_are_apart():
    page = b"<h1>CO<sub>2</sub> in <i>E</i>-cars<br>and <div>trains</div></h1>"
    assert blocks_of(".html", page)[0] == [Block(1, "CO2 in E-cars and trains")]
    assert blocks_of(".md", b"# The `max_k`-th of **H**2O")[0] == [Block(1, "The max_k-th of H2O")]


@pytest.mark.parametrize(
    ("named", "written", "text"),
    [
        ("iso-8859-1", "cp1252", "It’s “café”—5 €"),
        ("Shift_JIS", "cp932", "日本語①のページ"),
        ("gb2312", "gbk", "朱镕基是总理"),
        ("ks_c_5601-1987", "cp949", "똠방각하"),
        ("iso-2022-jp", "iso2022_jp", "日本語のページ"),
        ("windows-1251", "cp1251", "Привет"),
        ("iso-8859-1", "utf-8", "a page that names another one: “café”"),
    ],
)
def test_a_page_is_in_the_encoding_that_browsers_read_under_its_name(named, written, text):
    page = f"<meta charset={named}><p>{text}</p>".encode(written)
    assert blocks_of(".html", page) == ([Block(0, text)], "")


def test_lines_of_a_page_that_is_turned_stay_apart_and_what_is_cut_off_is_no_text():
    page = pdf(["Heading\nFirst point\nSecond point"])
    turned = page.replace(b"50 700 Td", b"0 1 -1 0 50 50 Tm")
    assert blocks_of(".pdf", turned)[0] == [Block(0, "Heading First point Second point", 1)]
    cut = page.replace(b"/MediaBox[0 0 612 792]", b"/MediaBox[0 0 612 690]")
    assert blocks_of(".pdf", cut)[0] == [Block(0, "First point Second point", 1)]


def test_what_nobody_sees_is_no_letter_of_a_word():
    title = "<title>Donau&shy;fahrt</title>"
    page = f"{title}<p>Donau&shy;<b>dampf</b>\u00adschiff, \u202bعربي\u202c, می\u200cخواهم, 👩\u200d🚀</p>".encode()
    text = "Donaudampfschiff, عربي, می\u200cخواهم, 👩\u200d🚀"
    assert blocks_of(".html", page)[0] == [Block(1, "Donaufahrt"), Block(0, text)]
    assert blocks_of(".txt", "Donau\u00ad\ndampf\u00adschiff".encode())[0] == [Block(0, "Donaudampfschiff")]
    assert blocks_of(".md", "# Donau&shy;fahrt\n\nDampf\u00adschiff".encode())[0] == [
        Block(1, "Donaufahrt"),
        Block(0, "Dampfschiff"),
    ]


@pytest.mark.parametrize(
    ("markdown", "passages"),
    [
        ("# Alarm\n## Call 112\n## Leave\nWait outside.", [("1", "Alarm", "Call 112\nLeave\nWait outside.")]),
        ("# Alarm\n## Call 112\n# Fire\nWait.", [("1", "Alarm", "Call 112"), ("2", "Fire", "Wait.")]),
        ("# Call 112\n# Leave", [("1", "a", "Call 112\nLeave")]),
        ("# Alarm\n## At night\n### Call 112\nWait.", [("1", "Alarm > At night > Call 112", "Wait.")]),
        ("# Alarm", []),
    ],
)
def test_a_heading_with_nothing_below_it_is_text(markdown, passages):
    assert list(cut(blocks_of(".md", markdown.encode())[0], "a", Cut())) == passages


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "Não há razões para discussões; as opções são várias e põe-se em questão."),
        ("cp1252", "El señor García vive en la calle Muñoz nº 5, 1ª planta, y mañana cumplirá años."),
        ("cp1252", "Il 1º maggio la città è più bella, perché c'è libertà e virtù."),
        ("cp1252", "Wie geht´s? 5 ± 2 µg, Größe und Übermut. Wie geht´s?"),
        ("cp1252", "Õpilased käivad koolis, kus õpetajad õpetavad; nõu on hea, külm öö."),
        ("cp1252", "Müller a goûté le vin."),
        ("iso2022_jp", "検索エンジンを作ります。It ranks."),
        ("cp1250", "Az árusok őszi szőlőt kínálnak. A fűtés és a hűtés költsége nő, ezért új gép kell."),
        ("cp1250", "Aceasta este o masă frumoasă şi oamenii sunt buni, aşa că mergem la mare."),
        ("cp1250", "Zażółć gęślą jaźń. Wieś była piękna, a ludzie mili i życzliwi."),
    ],
)
def test_a_guessed_encoding_is_that_of_the_language(encoding, text):
    assert decode(text.encode(encoding)) == (text, f"read as {encoding}, which was guessed")


def test_a_word_file_with_a_password_or_another_compression_can_not_be_unpacked():
    for at, value, reason in ((8, 1, "encrypted"), (10, 9, "compression")):
        content = bytearray(word("Give fluids."))
        entry = content.find(b"PK\x01\x02")
        while entry >= 0:
            content[entry + at] = value
            entry = content.find(b"PK\x01\x02", entry + 1)
        with pytest.raises(Unreadable, match=f"can't be unpacked .*{reason}"):
            blocks_of(".docx", bytes(content))


def test_a_first_row_of_several_words_that_differs_from_the_others_names_the_columns(tmp_path):
    rows = [f"{n},Ann,2021-03-2{n},The pump of floor {n} makes a noise when it starts.\n" for n in range(6)]
    (tmp_path / "a.csv").write_text("Ticket No.,Customer,Date of Purchase,Description (EN)\n" + "".join(rows))
    (tmp_path / "b.csv").write_text("Pumps move fluids.,x\nValves let them pass.,y\n" * 5)
    documents, remarks = read(tmp_path)
    assert [row.id for row in documents][:7] == [*(f"a.csv#{n}" for n in range(1, 7)), "b.csv#1"]
    assert documents[0].text.startswith("The pump of floor 0") and len(documents) == 16
    assert "text is column 'Description (EN)'" in remarks[0] and "text is column 'column 1'" in remarks[1]


def test_passages_end_with_sentences_of_other_scripts():
    sentence = "यह एक छोटा वाक्य है।"
    passages = [one.text for one in cut([Block(0, " ".join([sentence] * 12))], "x", Cut(words=30, overlap=0))]
    assert len(passages) > 1 and all(one.endswith("है।") and "  " not in one for one in passages)


def test_pages_of_a_pdf_that_are_pictures_are_counted(tmp_path):
    picture = ") Tj ET q 99 0 0 99 0 0 cm BI /W 1 /H 1 /BPC 8 /CS /G ID x EI Q BT ("
    (tmp_path / "scan.pdf").write_bytes(pdf(["The cover.", picture, "", f"With text{picture}", picture]))
    documents, remarks = read(tmp_path)
    assert [row.text for row in documents] == ["The cover.\nWith text"]
    assert remarks == ["not read: pages that are pictures (run OCR first): scan.pdf 2 of 5"]


@pytest.mark.parametrize("ending", [".xhtml", ".html"])
def test_short_forms_of_xml_hold_no_text(ending):
    """A book's page: in HTML `<title/>` or `<aside/>` would hold, and so leave out, all that follows."""
    page = (
        '<?xml version="1.0"?>\n<html xmlns="http://www.w3.org/1999/xhtml"><head><title/><script src="a.js"/></head>'
        "<body><h1>Pumps</h1><p>One<br/>two.</p><aside />Three <![CDATA[< four]]>.<p id='x'/></body></html>"
    )
    blocks, _ = blocks_of(ending, page.encode())
    assert [block.text for block in blocks] == ["Pumps", "One", "two.", "Three < four."]
