"""Reads a metrics page with the OpenMetrics parser of Prometheus's own Python client.

Usage: openmetrics.py FILE

Prints JSON: for each family its type and unit, and every exemplar with the name and labels of its sample. The parser
refuses a page that breaks a rule of the format, and the script ends with its error then.
"""

import json
import pathlib
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

families, exemplars = {}, []
for family in text_string_to_metric_families(pathlib.Path(sys.argv[1]).read_text()):
    families[family.name] = {"type": family.type, "unit": family.unit, "samples": len(family.samples)}
    for sample in family.samples:
        if sample.exemplar is not None:
            exemplar = sample.exemplar
            exemplars.append(
                {
                    "name": sample.name,
                    "labels": sample.labels,
                    "count": sample.value,
                    "exemplar": exemplar.labels,
                    "value": exemplar.value,
                    "timestamp": float(exemplar.timestamp),
                }
            )
print(json.dumps({"families": families, "exemplars": exemplars}))
