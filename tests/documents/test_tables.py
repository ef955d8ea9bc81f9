import csv
import io
import json
import tracemalloc

from mt.documents.formats import translate_document
from mt.documents.tables import Fields
from mt.documents.texts import TextTranslator
from tests.documents.samples import CSV, JSONL, TEXT, TSV, translated, upper


def test_lines_keep_their_number_and_their_ends() -> None:
    assert translated("text", TEXT, upper) == b"  GOOD TEA. TWO CUPS!  \n\n\xe3\x80\x80\nLAST\n"
    assert translated("text", b"", upper) == b"" and translated("text", b"\r\n\n", upper) == b"\n\n"
    assert translated("text", b"\xef\xbb\xbfa\r\n", upper) == b"A\n"


def test_a_translated_line_never_falls_apart() -> None:
    data = "a\x0bb\x85c\u2028d\re\n".encode()
    assert translated("text", data, lambda s: [f"{x}\n" for x in s]).count(b"\n") == 1
    assert translated("text", data, upper) == b"A B C D E\n"
    assert translated("tsv", b"x\ta\r\n", lambda s: ["one\ttwo\nthree" for _ in s]) == b"x\ta\tone two three\r\n"


def test_jsonl_gets_a_field_and_is_what_it_was() -> None:
    result = translated("jsonl", JSONL, upper)
    before, after = ([json.loads(line) for line in data.splitlines()] for data in (JSONL, result))
    assert [row.pop("de") for row in after] == ["GOOD {name} TEA.", "", "CUP. PLATE."]
    assert before == after
    for old, new in zip(JSONL.splitlines(), result.splitlines(), strict=True):
        content = old.rstrip(b" }")
        assert new.startswith(content) and new.endswith(old[len(content) :])
    assert result.count(b"\r\n") == JSONL.count(b"\r\n") and not result.endswith(b"\n")


def test_tsv_gets_a_column_and_quotation_marks_are_characters() -> None:
    assert translated("tsv", TSV, upper) == b'A\tgood "tea\tGOOD "TEA\nB\t\t\nC\t cup\t CUP\r\n'


def test_names_of_columns() -> None:
    texts = TextTranslator("en", "de", upper)
    for format, data in (("tsv", b"id\ten\n1\tcup\n"), ("csv", b"id;en\n1;cup\n")):
        mark = b"\t" if format == "tsv" else b";"
        for start in (b"", b"\xef\xbb\xbf"):
            found = b"".join(translate_document(format, io.BytesIO(start + data), "a", texts, Fields("en", "new")))
            names, row, _ = data.split(b"\n")
            assert found == start + names + mark + b"new\n" + row + mark + b"CUP\n"


def test_csv_is_read_back_with_one_column_more() -> None:
    result = translated("csv", CSV, upper)
    before, after = (list(csv.reader(io.StringIO(data.decode(), newline=""))) for data in (CSV, result))
    assert [row[:3] for row in after] == before
    assert [row[3] for row in after] == ["de", "GOOD, TEA", 'TWO\nLINES "Q"', ""]


def test_a_cell_with_a_line_break_is_quoted() -> None:
    assert translated("csv", b'id,en\n1,"two\nlines"\n', upper) == b'id,en,de\n1,"two\nlines","TWO\nLINES"\n'


def test_a_comma_in_quotation_marks_separates_nothing() -> None:
    data = b'"name, first";en\n"a, b";cup\n'
    assert translated("csv", data, upper) == b'"name, first";en;de\n"a, b";cup;CUP\n'


def test_many_lines_take_little_memory() -> None:
    class Lines(io.RawIOBase):
        left = 5_000

        def readline(self, size: int = -1) -> bytes:
            self.left -= 1
            return b'{"en": "they read good books %d"}\n' % self.left if self.left >= 0 else b""

    texts = TextTranslator("en", "de", upper)
    tracemalloc.start()
    count = sum(1 for _ in translate_document("jsonl", Lines(), "a", texts, Fields("en", "de")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 5_000 and peak < 4e6  # 2,000 lines at a time
