from tests.test_cli import run_dir, run_mt  # noqa: F401
