import pytest

pytest.importorskip("fastapi", reason="needs mt's extra serve")

from mt.serve.limits import Limits, Rates, Refused


def test_a_limit_out_of_range_is_refused():
    with pytest.raises(ValueError, match="--max-body-bytes=0: must be between 1 and"):
        Limits(max_body_bytes=0)


def test_a_client_that_comes_too_often_waits():
    rates = Rates(6)  # one each ten seconds, six at once
    for _ in range(6):
        rates.count("a", now=100)
    with pytest.raises(Refused) as refused:
        rates.count("a", now=100)
    assert (refused.value.status, refused.value.retry_after_seconds) == (429, 11)
    rates.count("b", now=100)  # another client
    rates.count("a", now=110.1)
    with pytest.raises(Refused):
        rates.count("a", now=110.1)


def test_refused_requests_do_not_count():
    rates = Rates(1)
    rates.count("a", now=0)
    for second in range(1, 60):
        with pytest.raises(Refused):
            rates.count("a", now=second)
    rates.count("a", now=61)


def test_clients_are_forgotten():
    rates = Rates(1)
    for number in range(20_000):
        rates.count(str(number), now=0)
    assert len(rates._clients) == 10_000


def test_without_a_rate_nobody_waits():
    rates = Rates(None)
    for _ in range(1000):
        rates.count("a", now=0)
    assert not rates._clients
