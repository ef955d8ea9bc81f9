import io
import zipfile

import docx as reader

from tests.documents.samples import DOCX_PART, docx, same, translated, upper


def made(**changes: str) -> bytes:
    """A document that python-docx wrote."""
    document = reader.Document()
    document.add_heading("my holiday", 1)
    paragraph = document.add_paragraph("we went to ")
    paragraph.add_run("china").bold = True
    paragraph.add_run(" last year. it was great.")
    document.add_table(1, 2).cell(0, 0).text = "food"
    document.sections[0].header.paragraphs[0].text = "good morning"
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def test_a_document_keeps_its_runs_and_formatting() -> None:
    before, after = (reader.Document(io.BytesIO(data)) for data in (made(), translated("docx", made(), upper)))
    for old, new in zip(before.paragraphs, after.paragraphs, strict=True):
        assert old.style.name == new.style.name
        assert [(run.text.upper(), run.bold) for run in old.runs] == [(run.text, run.bold) for run in new.runs]
    assert after.tables[0].cell(0, 0).text == "FOOD"
    assert after.sections[0].header.paragraphs[0].text == "GOOD MORNING"


def test_every_byte_stays_where_nothing_changes() -> None:
    data = made()
    before, after = (zipfile.ZipFile(io.BytesIO(d)) for d in (data, translated("docx", data, same)))
    assert [(m.filename, m.date_time, m.compress_type) for m in before.infolist()] == [
        (m.filename, m.date_time, m.compress_type) for m in after.infolist()
    ]
    assert all(before.read(name) == after.read(name) for name in before.namelist())


def test_words_cut_into_runs_are_one_text() -> None:
    asked = []
    translated("docx", docx(), lambda sentences: asked.extend(sentences) or sentences)
    assert asked[0] == "they read <1>good<2>books & tea." and asked[1:] == ["cell"]


def test_runs_of_another_look_get_their_own_part() -> None:
    result = zipfile.ZipFile(io.BytesIO(translated("docx", docx(), upper))).read("word/document.xml").decode()
    paragraphs = reader.Document(io.BytesIO(translated("docx", docx(), upper))).paragraphs
    assert [run.text for run in paragraphs[0].runs] == ["THEY READ ", "", "GOOD", "\tBOOKS & TEA."]
    assert result.count("<w:tab/>") == 1 and "proofErr" in result


def test_a_text_box_in_a_paragraph_is_a_text_of_its_own() -> None:
    box = "<w:r><w:txbxContent><w:p><w:r><w:t>in the box</w:t></w:r></w:p></w:txbxContent></w:r>"
    part = DOCX_PART.replace("<w:r><w:rPr><w:b/>", f"{box}<w:r><w:rPr><w:b/>")
    asked = []
    translated("docx", docx(part), lambda sentences: asked.extend(sentences) or sentences)
    assert asked[:2] == ["in the box", "they read <1>good<2>books & tea."]


def document(data: bytes) -> str:
    return zipfile.ZipFile(io.BytesIO(translated("docx", data, upper))).read("word/document.xml").decode()


def test_the_prefix_is_that_of_the_document() -> None:
    part = DOCX_PART.replace("<w:", "<x:").replace("</w:", "</x:").replace("xmlns:w", "xmlns:x")
    assert document(docx(part)) == document(docx()).replace("<w:", "<x:").replace("</w:", "</x:").replace(
        "xmlns:w", "xmlns:x"
    )


def test_what_was_moved_away_stays() -> None:
    moved = '<w:p><w:moveFrom w:id="1"><w:r><w:t>read </w:t></w:r></w:moveFrom><w:r><w:t>good tea</w:t></w:r></w:p>'
    result = document(docx(DOCX_PART.replace("<w:p/>", moved)))
    assert "<w:t>read </w:t>" in result and ">GOOD TEA</w:t>" in result
