"""The metrics that dashboards and alerts rely on: names, types, labels and help texts."""

import re

import pytest

from s3_checks import PART_BYTES_MIN, body_of, multipart, read
from settled_state import QUICK, settle

# Name without the suffix of counters, type, labels.
CONTRACT = {
    "s3o_requests": ("counter", {"operation", "status"}),
    "s3o_request_duration_seconds": ("histogram", {"operation"}),
    "s3o_admission_rejections": ("counter", set()),
    "s3o_backend_requests": ("counter", {"backend", "operation", "outcome"}),
    "s3o_backend_duration_seconds": ("histogram", {"backend", "operation"}),
    "s3o_backend_ingress_bytes": ("counter", {"backend"}),
    "s3o_backend_egress_bytes": ("counter", {"backend"}),
    "s3o_audit_dropped": ("counter", set()),
    "s3o_catalog_units": ("counter", set()),
    "s3o_catalog_commits": ("counter", set()),
    "s3o_worker_runs": ("counter", {"worker", "outcome"}),
    "s3o_worker_items": ("counter", {"worker", "outcome"}),
    "s3o_worker_last_success_timestamp_seconds": ("gauge", {"worker"}),
    "s3o_stale_settlements": ("counter", {"worker"}),
    "s3o_oldest_due_seconds": ("gauge", {"queue"}),
    "s3o_objects": ("gauge", {"bucket"}),
    "s3o_dedup_saved_bytes": ("gauge", {"bucket"}),
    "s3o_multipart_uploads_open": ("gauge", set()),
    "s3o_usage_api_requests": ("gauge", {"backend"}),
    "s3o_usage_egress_bytes": ("gauge", {"backend"}),
    "s3o_usage_ingress_bytes": ("gauge", {"backend"}),
    "s3o_quota_bytes_used": ("gauge", {"backend"}),
    "s3o_quota_bytes_limit": ("gauge", {"backend"}),
    "s3o_quota_reserved_bytes": ("gauge", {"backend"}),
    "s3o_quota_orphan_bytes": ("gauge", {"backend"}),
    "s3o_quota_drift_bytes": ("gauge", {"backend"}),
    "s3o_quota_written_off_bytes": ("gauge", {"backend"}),
    "s3o_cleanup_queue_depth": ("gauge", set()),
    "s3o_cleanup_queue_processed": ("counter", {"status"}),
    "s3o_cleanup_queue_stale_claims_recovered": ("counter", {"backend"}),
    "s3o_cleanup_dlq_depth": ("gauge", set()),
    "s3o_cleanup_dlq_enqueued": ("counter", {"backend"}),
    "s3o_cleanup_enqueue_failures": ("counter", {"backend", "reason", "stage"}),
    "s3o_pending_intents_enqueued": ("counter", set()),
    "s3o_pending_intents_resolved": ("counter", {"status"}),
    "s3o_pending_intents_depth": ("gauge", set()),
}
ENDING = {"counter": "_total", "gauge": "", "histogram": "_count"}
STATUSES = {
    "s3o_cleanup_queue_processed_total": {"success", "success_absent", "retry", "exhausted", "deferred"},
    "s3o_pending_intents_resolved_total": {"committed", "promoted", "dropped", "superseded", "ambiguous"},
}


@pytest.fixture
def server(own_server):
    server = own_server(settings=QUICK)
    server.config["backends"][0]["quota"] = "1GiB"
    server.start().s3().create_bucket(Bucket="bucket")
    return server


def page(server):
    status, body = server.admin_get("/metrics")
    assert status == 200
    return body.decode()


def labels_of(text, name):
    """The label names of every sample of a metric."""
    samples = re.findall(rf"^{name}(?:\{{(.*)\}})? \S+", text, re.MULTILINE)
    return [set(re.findall(r'(\w+)="', labels)) for labels in samples]


def cause_every_metric(server):
    s3 = server.s3()
    s3.put_object(Bucket="bucket", Key="kept", Body=body_of(1000))
    assert read(s3, "bucket", "kept") == body_of(1000)
    s3.put_object(Bucket="bucket", Key="gone", Body=body_of(1000))
    multipart(s3, "bucket", "joined", [body_of(PART_BYTES_MIN), b"end"])
    s3.delete_object(Bucket="bucket", Key="gone")
    settle(server)


def test_every_metric_has_name_type_labels_and_help_text(server):
    cause_every_metric(server)
    text = page(server)
    for name, (kind, labels) in CONTRACT.items():
        helps = re.search(rf"^# HELP {name} (.+)$", text, re.MULTILINE)
        assert helps and len(helps[1]) > 10, f"{name}: no help text"
        assert f"# TYPE {name} {kind}\n" in text, f"{name}: not a {kind}"
        found = labels_of(text, name + ENDING[kind])
        assert found, f"{name}: no sample"
        assert all(one == labels for one in found), f"{name}: labels {found}, expected {labels}"


def test_every_status_is_exported_before_it_occurs(server):
    samples = server.metrics()
    for name, statuses in STATUSES.items():
        for status in statuses:
            assert samples[f'{name}{{status="{status}"}}'] == 0, f"{name} {status}"


def test_counters_match_the_requests(server):
    cause_every_metric(server)
    samples = server.metrics()
    # Two objects and two parts.
    assert samples["s3o_pending_intents_enqueued_total"] == 4
    assert samples['s3o_pending_intents_resolved_total{status="committed"}'] == 4
    assert samples['s3o_cleanup_queue_processed_total{status="success"}'] == 1
    assert samples['s3o_objects{bucket="bucket"}'] == 2
    assert samples['s3o_quota_bytes_used{backend="disk"}'] == 1000 + PART_BYTES_MIN + 3
    assert samples['s3o_quota_bytes_limit{backend="disk"}'] == 1 << 30
    assert samples["s3o_pending_intents_depth"] == samples["s3o_cleanup_queue_depth"] == 0
    failures = {name: value for name, value in samples.items() if name.startswith("s3o_cleanup_enqueue_failures_total")}
    assert len(failures) == 2 and not any(failures.values()), failures


def test_absent_bytes_are_counted_separately(server):
    s3 = server.s3()
    s3.put_object(Bucket="bucket", Key="gone", Body=body_of(1000))
    [name] = server.files()
    (server.root / name).unlink()
    s3.delete_object(Bucket="bucket", Key="gone")
    settle(server)
    samples = server.metrics()
    assert samples['s3o_cleanup_queue_processed_total{status="success_absent"}'] == 1
    assert samples['s3o_cleanup_queue_processed_total{status="success"}'] == 0
    assert samples['s3o_quota_orphan_bytes{backend="disk"}'] == 0


def test_backend_without_a_quota_exports_no_limit(own_server):
    server = own_server().start()
    assert not labels_of(page(server), "s3o_quota_bytes_limit")
