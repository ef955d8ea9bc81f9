import pytest

from mt.translation.glossary import Glossary

GLOSSARY = Glossary(
    {"tea": "Tee", "green tea": "grüner Tee", "China": "China", "茶": "tea", "C++": "C++", "e.g.": "z. B."}
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("They drink tea.", ("Tee",)),
        ("Tea, TEA and tea", ("Tee",)),
        ("Green tea and tea", ("grüner Tee", "Tee")),
        ("teapots, a team and steam", ()),
        ("I love China but not china", ("China",)),
        ("我每天喝茶", ("tea",)),
        ("C++ is e.g. a language", ("C++", "z. B.")),
        ("", ()),
        ("  green \u00a0 tea ", ("grüner Tee",)),
        ("a te\u0301a and tea\u0301", ()),  # marks belong to their letters
    ],
)
def test_terms_are_whole_words_and_the_longest_counts(text, expected):
    assert GLOSSARY.targets_in(text) == expected


def test_reading(tmp_path):
    file = tmp_path / "terms.tsv"
    file.write_text("# terms\ntea\tTee\n\n green  tea \tgrüner Tee\ntea\tTee\n", encoding="utf-8")
    assert Glossary.read(file).terms == {"tea": "Tee", "green tea": "grüner Tee"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tea\n", "line 1: expected a source term, a tab and a target term, got 'tea'"),
        ("a\tb\ntea\t\n", "line 2: expected"),
        ("a\tb\tc\n", "line 1: expected"),
        ("tea\tTee\ntea\tTea\n", "line 2: 'tea' is translated as 'Tea', but before as 'Tee'"),
        ("# nothing\n", "no terms in this glossary"),
    ],
)
def test_wrong_files_name_the_line(tmp_path, text, message):
    file = tmp_path / "terms.tsv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        Glossary.read(file)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def test_ten_thousand_terms_are_found_in_time():
    glossary = Glossary({f"word{i} of {i * 7 % 10_000}": str(i) for i in range(10_000)})
    text = "these are words " * 500 + "word77 of 539"
    assert glossary.targets_in(text) == ("77",)
