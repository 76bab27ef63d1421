# queuewatch-proxy: the sidecar that forwards an application's SQS calls. No Spark, no Java; for amd64 and arm64.
# Build from the repository's root: docker build -f deploy/proxy.Dockerfile -t queuewatch-proxy .

FROM python:3.11-slim-bookworm AS wheel
WORKDIR /src
COPY client client
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels ./client

FROM python:3.11-slim-bookworm
ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
COPY requirements-proxy.txt /tmp/requirements.txt
COPY --from=wheel /wheels /tmp/wheels
# Every dependency is pinned by hash; compile now, because the package folder is read-only when the image runs.
RUN pip install --no-cache-dir --require-hashes --requirement /tmp/requirements.txt \
    && pip install --no-cache-dir --no-deps /tmp/wheels/*.whl \
    && python -m compileall -q /usr/local/lib/python3.11/site-packages \
    && rm -r /tmp/requirements.txt /tmp/wheels

USER 10001:10001
# Loopback only: in a pod or an ECS task the application is on the same loopback interface.
ENV QUEUEWATCH_PROXY_LISTEN=127.0.0.1:9410
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 CMD ["queuewatch-proxy", "--check"]
ENTRYPOINT ["queuewatch-proxy"]
