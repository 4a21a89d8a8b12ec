#!/usr/bin/env python3
"""Counts GoogleTest cases in a Bazel build event file (--build_event_json_file).

    count_tests.py EVENTS STATUS     STATUS: bazel's exit status

Prints "PASSED FAILED", and the failures on standard error. A target that was not built or not run, or whose program
failed without a failed case, counts as one failure; so does a status that no failure explains (a
demo that does not compile is in no test).
"""

import json
import pathlib
import re
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


# What XML 1.0 does not allow: a failed check may print any bytes into Bazel's test.xml.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_xml(uri):
    path = urllib.parse.unquote(urllib.parse.urlparse(uri).path)
    text = pathlib.Path(path).read_bytes().decode("utf-8", errors="replace")
    return ElementTree.fromstring(NOT_XML.sub("\ufffd", text))


def cases(result):
    """(passed, failed names) of one run of a test target."""
    uris = [o["uri"] for o in result.get("testActionOutput", []) if o["name"] == "test.xml"]
    passed, failed = 0, []
    for uri in uris:
        for case in read_xml(uri).iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}"
            if case.find("failure") is not None or case.find("error") is not None:
                failed.append(name)
            elif case.find("skipped") is None and case.get("status") != "notrun":
                passed += 1
    if result["status"] != "PASSED" and not failed:
        failed.append(result["status"])
    return passed, failed


def main():
    expected, passed, failures = set(), 0, []
    events = pathlib.Path(sys.argv[1])
    for line in events.read_text().splitlines() if events.exists() else []:
        event = json.loads(line)
        identity = event["id"]
        if "targetConfigured" in identity:
            if "_test rule" in event.get("configured", {}).get("targetKind", ""):
                expected.add(identity["targetConfigured"]["label"])
        elif event.get("aborted", {}).get("reason") == "SKIPPED":
            # Not for this configuration (target_compatible_with), as its BUILD file says.
            expected.discard(identity.get("targetCompleted", {}).get("label"))
        elif "testResult" in identity:
            label = identity["testResult"]["label"]
            expected.discard(label)
            good, bad = cases(event["testResult"])
            passed += good
            failures += [f"{label} {name}" for name in bad]
    failures += [f"{label} was not built or not run" for label in sorted(expected)]
    status = int(sys.argv[2])
    if status != 0 and not failures:
        failures.append(f"bazel: exit status {status}: a target that is no test was not built")
    if not passed and not failures:
        failures.append("no test was run")
    for failure in failures:
        print("FAILED", failure, file=sys.stderr)
    print(passed, len(failures))


main()
