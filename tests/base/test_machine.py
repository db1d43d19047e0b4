"""Threads: how many there are, how BLAS is limited, and how calls are distributed."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from threadpoolctl import threadpool_info

from polyseme.base import machine
from polyseme.base.machine import (
    n_cores,
    n_threads,
    one_blas_thread,
    one_thread,
    onednn_products,
    run_all,
)


@pytest.mark.parametrize(
    ("setting", "expected"), [("1", 1), ("1,4", 1), ("", n_cores()), ("many", n_cores())]
)
def test_the_number_of_threads_follows_the_environment(monkeypatch, setting, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert n_threads() == expected


def test_there_is_one_thread_inside_of_one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(machine, "n_cores", lambda: 4)
    assert n_threads() == 2
    with one_thread():
        with one_thread():
            assert n_threads() == 1
        assert n_threads() == 1
    assert n_threads() == 2


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_the_last_of_several_limits_restores_the_threads_of_blas():
    before = blas_threads()
    both_limited = threading.Barrier(3)
    may_leave = threading.Event()

    def leave_first():
        with one_blas_thread():
            both_limited.wait()

    def leave_last():
        with one_blas_thread():
            both_limited.wait()
            may_leave.wait()

    first = threading.Thread(target=leave_first, daemon=True)
    last = threading.Thread(target=leave_last, daemon=True)
    first.start()
    last.start()
    both_limited.wait()
    first.join()
    assert set(blas_threads()) <= {1}
    may_leave.set()
    last.join()
    assert blas_threads() == before


@pytest.fixture
def calls():
    """The calls that were made so far."""
    return []


def test_all_calls_are_made(calls):
    run_all([lambda: calls.append(1)] * 20, 3)
    assert len(calls) == 20
    run_all([], 2)


def test_an_error_in_a_call_is_raised(calls):
    def fail():
        raise IndexError("no room")

    with pytest.raises(IndexError, match="no room"):
        run_all([fail, *[lambda: calls.append(1)] * 3], 2)


def test_all_calls_are_made_where_no_thread_can_be_started(calls, monkeypatch):
    class Exhausted:
        def submit(self, *_):
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(machine, "_pool", Exhausted)
    run_all([lambda: calls.append(1)] * 5, 3)
    assert len(calls) == 5


def test_onednn_takes_products_in_single_precision():
    generator = torch.Generator().manual_seed(3)
    left = torch.randn(2, 70, 90, generator=generator)
    right = torch.randn(2, 90, 110, generator=generator)
    exact = torch.bmm(left.double(), right.double())
    with onednn_products():
        product = torch.bmm(left, right)
    torch.testing.assert_close(product.double(), exact, atol=1e-3, rtol=0)


@pytest.mark.skipif(machine._onednn_setting() is None, reason="torch 2.9 has the setting")
def test_the_last_to_leave_restores_the_setting_of_onednn(monkeypatch):
    monkeypatch.setattr(machine, "_onednn_is_precise", lambda: True)
    setting = machine._onednn_setting()
    before = setting.fp32_precision
    with onednn_products():
        with onednn_products():
            assert setting.fp32_precision == "bf16"
        assert setting.fp32_precision == "bf16"
    assert setting.fp32_precision == before


@pytest.mark.skipif(machine._onednn_setting() is None, reason="torch 2.9 has the setting")
def test_threads_try_out_the_setting_of_onednn_one_after_the_other(monkeypatch):
    n_running = 0
    most_running = 0

    def try_out():
        nonlocal n_running, most_running
        n_running += 1
        most_running = max(most_running, n_running)
        time.sleep(0.01)
        n_running -= 1
        return False

    def enter():
        with onednn_products():
            pass

    monkeypatch.setattr(machine, "_onednn_is_precise", try_out)
    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most_running == 1


@pytest.mark.skipif(machine._onednn_setting() is None, reason="torch 2.9 has the setting")
def test_nothing_changes_where_onednn_would_round(monkeypatch):
    monkeypatch.setattr(machine, "_onednn_is_precise", lambda: False)
    setting = machine._onednn_setting()
    before = setting.fp32_precision
    with onednn_products():
        assert setting.fp32_precision == before
