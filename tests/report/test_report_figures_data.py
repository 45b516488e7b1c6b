"""The data of the figures: from the exported tables alone, equal to what the run folder gives."""

import pytest
from run_folders import finished_sweep

from rltune.report.audit import audit_folder
from rltune.report.export import tables_of, write_tables
from rltune.report.figures.make import figure_data
from rltune.report.figures.source import about_folder, read_tables
from rltune.report.folder import read_folder, read_records


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_read_back_give_the_data_of_the_run_folder(tmp_path, kind):
    folder = read_folder(finished_sweep(tmp_path).run)
    read = read_records(folder)
    audit = audit_folder(folder, read)
    write_tables(folder, read, audit, tmp_path)
    tables = read_tables(tmp_path, about_folder(folder, audit), kind=kind)
    assert tables == tables_of(folder, read, audit)
    assert figure_data(tables) == figure_data(tables_of(folder, read, audit))
