"""The service as an application of `spark-submit`: arguments after this file are those of `queuewatch`.

`spark-submit --master … deploy/spark/queuewatch_job.py run --config queuewatch.yaml`
"""

from streaming.cli.main import main

main()
