"""Files as people have them: other delimiters, encodings and programs; each read, or named."""

import gzip
import importlib.util
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest
from pyarrow import feather

import fedopl
from fedopl.client.apply_policy import decide_table
from tiny_study import CLIENT, write_tiny
from tiny_study import rows as tiny_rows

N_ROWS = 60
SCHEMA = fedopl.Schema(
    action="arm",
    actions=["usual", "new"],
    reward="gain",
    direction="higher",
    numeric=["age"],
    categorical={"living": ["zu zweit", "für sich"]},
)


def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.normal(60, 9, N_ROWS).round(2),
            "living": np.where(rng.random(N_ROWS) < 0.4, "für sich", "zu zweit"),
            "arm": np.where(rng.random(N_ROWS) < 0.5, "new", "usual"),
            "gain": rng.standard_normal(N_ROWS).round(4),
        }
    )


ALWAYS_NEW = fedopl.LinearPolicy(
    np.array([[0, 0, 0], [0, 0, 1.0]]), SCHEMA.actions, SCHEMA.feature_names, SCHEMA.encoding
)
EXPECTED = fedopl.read_logged(frame(), SCHEMA)


def check_same(data):
    np.testing.assert_array_equal(data.contexts, EXPECTED.contexts)
    np.testing.assert_array_equal(data.actions, EXPECTED.actions)
    np.testing.assert_array_equal(data.rewards, EXPECTED.rewards)


def refusal(path, **how):
    with pytest.raises(fedopl.DataError) as caught:
        fedopl.read_logged(path, SCHEMA, **how)
    return str(caught.value)


# --- text -----------------------------------------------------------------------------------------

# How the file is written, and how to read it; without that, the message names the first setting.
TEXTS = {
    "semicolons": ({"sep": ";"}, {"delimiter": ";"}),
    "bars": ({"sep": "|"}, {"delimiter": "|"}),
    "tabs": ({"sep": "\t"}, {"delimiter": "\t"}),
    "semicolons and decimal commas": (
        {"sep": ";", "decimal": ","},
        {"delimiter": ";", "decimal": ","},
    ),
    "decimal commas": ({"decimal": ","}, {"decimal": ","}),
    "utf-16": ({"encoding": "utf-16"}, {"encoding": "utf-16"}),
    "utf-16 without a mark": ({"encoding": "utf-16-le"}, {"encoding": "utf-16-le"}),
    "latin-1": ({"encoding": "latin-1"}, {"encoding": "latin-1"}),
    "a workbook's export": (
        {"sep": "\t", "encoding": "utf-16"},
        {"encoding": "utf-16", "delimiter": "\t"},
    ),
}


@pytest.mark.parametrize(("written", "read"), TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_a_text_is_read_as_is_said_and_else_the_message_names_the_setting(
    tmp_path, written, read, ending
):
    path = tmp_path / f"rows{ending}"
    frame().to_csv(path, index=False, **written)
    check_same(fedopl.read_logged(path, SCHEMA, **read))
    name, setting = next(iter(read.items()))
    spelled = setting.replace("\t", "\\t")
    assert f'{name} = "{spelled}"' in refusal(path)


def test_after_the_delimiter_the_decimal_comma_is_named(tmp_path):
    frame().to_csv(tmp_path / "rows.csv", index=False, sep=";", decimal=",")
    assert 'say decimal = ","' in refusal(tmp_path / "rows.csv", delimiter=";")


@pytest.mark.parametrize("ending", [".tsv", ".tab", ".tsv.gz"])
def test_the_ending_says_that_cells_are_separated_by_tabs(tmp_path, ending):
    frame().to_csv(tmp_path / f"rows{ending}", index=False, sep="\t")
    check_same(fedopl.read_logged(tmp_path / f"rows{ending}", SCHEMA))


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    frame().to_csv(tmp_path / "rows.csv", index=False, encoding="utf-8-sig")
    check_same(fedopl.read_logged(tmp_path / "rows.csv", SCHEMA))


def test_compression_goes_by_the_name_and_is_named_where_it_does_not(tmp_path):
    plain = frame().to_csv(index=False).encode()
    (tmp_path / "rows.csv").write_bytes(gzip.compress(plain))
    assert "is compressed with gzip; rename it to rows.csv.gz" in refusal(tmp_path / "rows.csv")
    (tmp_path / "rows.csv.gz").write_bytes(plain)
    assert "is not compressed; rename it to rows.csv" in refusal(tmp_path / "rows.csv.gz")


def test_other_files_that_are_called_csv_are_recognised(tmp_path):
    path = tmp_path / "rows.csv"
    for write, what in (
        (lambda: frame().to_parquet(path), "is a Parquet file; name it .parquet"),
        (lambda: frame().to_excel(tmp_path / "rows.xlsx"), "is a zip archive or an Excel workbook"),
    ):
        write()
        if (tmp_path / "rows.xlsx").exists():
            (tmp_path / "rows.xlsx").replace(path)
        assert what in refusal(path)


def test_windows_letters_are_told_from_latin_1(tmp_path):
    text = frame().to_csv(index=False).replace("für sich", "„allein“")
    (tmp_path / "rows.csv").write_bytes(text.encode("windows-1252"))
    assert 'probably encoding = "windows-1252"' in refusal(tmp_path / "rows.csv")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"delimiter": ";;"}, "delimiter: expected one sign"),
        ({"delimiter": "a"}, "delimiter: expected one sign"),
        ({"decimal": "'"}, "decimal: expected '.' or ','"),
        ({"decimal": ",", "delimiter": ","}, "cannot also be the delimiter"),
    ],
)
def test_settings_that_cannot_be_are_refused(how, message):
    with pytest.raises(fedopl.OptionError, match=message):
        fedopl.read_logged("rows.csv", SCHEMA, **how)


def test_a_text_of_one_column_that_nothing_cuts_is_taken_as_it_is(tmp_path):
    (tmp_path / "rows.csv").write_text("age\n1\n2\n")
    assert "columns missing" in refusal(tmp_path / "rows.csv")


def test_a_client_says_how_its_text_is_written(tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    table = pd.DataFrame(tiny_rows()).astype({"age": float, "severity": float, "gain": float})
    table.to_csv(tiny.table(), index=False, sep=";", decimal=",", encoding="utf-16")
    told = tiny.check()
    assert told.code == 1
    assert 'probably encoding = "utf-16"' in told.out
    how = 'encoding = "utf-16"\ndelimiter = ";"\ndecimal = ","\n'
    tiny.settings().write_text(CLIENT + how, encoding="utf-8")
    assert tiny.check().code == 0


def test_decisions_are_made_on_such_texts(tmp_path):
    frame().to_csv(tmp_path / "rows.csv", index=False, sep=";", decimal=",")
    with pytest.raises(fedopl.DataError, match='say delimiter = ";"'):
        decide_table(ALWAYS_NEW, tmp_path / "rows.csv", tmp_path / "out.csv")
    decided = decide_table(
        ALWAYS_NEW, tmp_path / "rows.csv", tmp_path / "out.csv", delimiter=";", decimal=","
    )
    assert decided.counts == {"usual": 0, "new": N_ROWS}
    assert pd.read_csv(tmp_path / "out.csv")["age"][0] == f"{frame()['age'][0]}".replace(".", ",")


# --- other programs -------------------------------------------------------------------------------

CODES = {"living": {1: "zu zweit", 2: "für sich"}, "arm": {0: "usual", 1: "new"}}


def coded():
    """The table with codes for labels, as statistics programs keep them."""
    code = {column: {label: n for n, label in labels.items()} for column, labels in CODES.items()}
    return frame().assign(**{column: frame()[column].map(codes) for column, codes in code.items()})


WRITERS = {
    "rows.xlsx": lambda path: frame().to_excel(path, index=False),
    "rows.feather": lambda path: feather.write_feather(pa.table(frame()), path),
    "rows.arrow": lambda path: feather.write_feather(pa.table(frame()), path),
    "text.dta": lambda path: pyreadstat.write_dta(frame(), path),
    "text.sav": lambda path: pyreadstat.write_sav(frame(), path),
    "text.zsav": lambda path: pyreadstat.write_sav(frame(), path, compress=True),
    "text.xpt": lambda path: pyreadstat.write_xport(frame(), path),
    "codes.dta": lambda path: pyreadstat.write_dta(coded(), path, variable_value_labels=CODES),
    "codes.sav": lambda path: pyreadstat.write_sav(coded(), path, variable_value_labels=CODES),
}


@pytest.mark.parametrize(("name", "write"), WRITERS.items(), ids=WRITERS)
def test_a_file_of_another_program_holds_the_same_rows(tmp_path, name, write):
    write(tmp_path / name)
    check_same(fedopl.read_logged(tmp_path / name, SCHEMA))


def test_a_file_that_sas_itself_wrote_is_read(tmp_path):
    packed = Path(__file__).with_name("sample.sas7bdat.gz").read_bytes()
    (tmp_path / "sample.sas7bdat").write_bytes(gzip.decompress(packed))
    names = {"action": "mylabl", "actions": [1, 2], "reward": "mynum", "numeric": ["myord"]}
    schema = fedopl.Schema(**names, direction="higher")
    data = fedopl.read_logged(tmp_path / "sample.sas7bdat", schema)
    assert data.rewards.tolist() == [1.1, 1.2, -1000.3, -1.4, 1000.3]
    assert data.actions.tolist() == [0, 1, 0, 1, 0]


CELL = (
    '<table:table-cell office:value-type="{kind}"{value}><text:p>{text}</text:p></table:table-cell>'
)
MANIFEST = (
    '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>'
)
SHEET = """<?xml version="1.0"?><office:document-content
 xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" office:version="1.2"><office:body>
<office:spreadsheet><table:table table:name="rows">{rows}</table:table></office:spreadsheet>
</office:body></office:document-content>"""


def open_document_cell(cell):
    if isinstance(cell, str):
        return CELL.format(kind="string", value="", text=cell)
    return CELL.format(kind="float", value=f' office:value="{cell}"', text=cell)


def test_a_sheet_of_an_open_document_holds_the_same_rows(tmp_path):
    table = frame()
    lines = [list(table), *table.itertuples(index=False)]
    rows = [
        f"<table:table-row>{''.join(map(open_document_cell, row))}</table:table-row>"
        for row in lines
    ]
    with zipfile.ZipFile(tmp_path / "rows.ods", "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", MANIFEST)
        archive.writestr("content.xml", SHEET.format(rows="".join(rows)))
    check_same(fedopl.read_logged(tmp_path / "rows.ods", SCHEMA))


def test_an_old_workbook_is_opened(tmp_path):
    packed = Path(__file__).with_name("sheets.xls.gz").read_bytes()
    (tmp_path / "sheets.xls").write_bytes(gzip.decompress(packed))
    names = {"action": "String", "actions": ["a", "b"], "reward": "1", "numeric": ["1.1"]}
    with pytest.raises(fedopl.DataError, match="no rows; expected a header and at least one row"):
        fedopl.read_logged(
            tmp_path / "sheets.xls", fedopl.Schema(**names, direction="higher"), sheet="Sheet1"
        )


def test_a_portable_file_of_spss_has_names_of_its_own(tmp_path):
    plain = frame().replace({"living": {"für sich": "alone"}}).rename(columns=str.upper)
    pyreadstat.write_por(plain, tmp_path / "rows.por")
    own = {name: name.upper() for name in SCHEMA.columns}
    labels = {"living": {"alone": "für sich"}}
    data = fedopl.read_logged(tmp_path / "rows.por", SCHEMA, columns=own, labels=labels)
    np.testing.assert_allclose(data.contexts, EXPECTED.contexts, rtol=1e-9)


def test_a_workbook_may_have_several_sheets_empty_rows_and_gaps(tmp_path):
    path = tmp_path / "book.xlsx"
    table = frame()
    table.loc[3, "age"] = None
    with pd.ExcelWriter(path) as book:
        pd.DataFrame({"about": ["x"]}).to_excel(book, sheet_name="about", index=False)
        table.to_excel(book, sheet_name="rows", index=False)
    with pytest.raises(fedopl.OptionError, match=r"expected one of 'about', 'rows'.*say sheet = "):
        fedopl.read_logged(path, SCHEMA)
    with pytest.raises(fedopl.DataError, match="missing values in 1 of 60 rows"):
        fedopl.read_logged(path, SCHEMA, sheet="rows")


def test_a_column_of_a_workbook_that_mixes_numbers_and_text_is_named(tmp_path):
    table = frame().astype({"age": object})
    table.loc[0, "age"] = "unknown"
    table.to_excel(tmp_path / "rows.xlsx", index=False)
    assert "1 of 60 rows are not numbers, such as 'unknown'" in refusal(tmp_path / "rows.xlsx")


@pytest.mark.parametrize(
    ("name", "extra"),
    [("rows.xlsx", "excel"), ("rows.dta", "statistics"), ("rows.sav", "statistics")],
)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    tmp_path, monkeypatch, name, extra
):
    (tmp_path / name).write_bytes(b"whatever")
    monkeypatch.setattr("fedopl.client.table.formats.find_spec", lambda package: None)
    with pytest.raises(fedopl.OptionError, match=rf"pip install 'fedopl\[{extra}\]'"):
        fedopl.read_logged(tmp_path / name, SCHEMA)


@pytest.mark.parametrize("name", ["rows.xlsx", "rows.dta", "rows.sav", "rows.xpt", "rows.feather"])
def test_a_file_that_is_something_else_is_refused_in_words(tmp_path, name):
    (tmp_path / name).write_bytes(b"these are no rows at all" * 10)
    assert "cannot be read as" in refusal(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "hint"), [("rows.rds", "arrow::write_parquet"), ("rows.json", "with DuckDB")]
)
def test_what_is_not_read_is_said_how_to_convert(tmp_path, name, hint):
    (tmp_path / name).write_bytes(b"x")
    assert hint in refusal(tmp_path / name)


def test_decisions_on_a_workbook_are_refused_with_what_to_do(tmp_path):
    frame().to_excel(tmp_path / "rows.xlsx", index=False)
    with pytest.raises(fedopl.DataError, match=r"ends in \.csv.*convert it to one of these"):
        decide_table(ALWAYS_NEW, tmp_path / "rows.xlsx", tmp_path / "out.csv")


def test_the_extras_are_installed_where_this_is_tested():
    assert all(map(importlib.util.find_spec, ("python_calamine", "pyreadstat")))
