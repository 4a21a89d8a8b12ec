#!/usr/bin/env python3
"""Counts GoogleTest cases in a Bazel build event file (--build_event_json_file).

    count_tests.py EVENTS STATUS     STATUS: bazel's exit status

Prints the failures, then "PASSED FAILED". A target that was not built or not run, or whose program
failed without a failed case, counts as one failure; so does a status that no failure explains (a
demo that does not compile is in no test).
"""

import json
import pathlib
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


def cases(result):
    """(passed, failed names) of one run of a test target."""
    uris = [o["uri"] for o in result.get("testActionOutput", []) if o["name"] == "test.xml"]
    passed, failed = 0, []
    for uri in uris:
        root = ElementTree.parse(urllib.parse.unquote(urllib.parse.urlparse(uri).path)).getroot()
        for case in root.iter("testcase"):
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
        print("FAILED", failure)
    print(passed, len(failures))


main()
