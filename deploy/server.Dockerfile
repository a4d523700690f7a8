# The server: a SuperLink and the operator's commands. From the root of the repository, after `make dist`:
#   docker build --file deploy/server.Dockerfile --tag fedopl-server .
FROM python:3.11-slim-bookworm
ENV PYTHONDONTWRITEBYTECODE=1 \
    FLWR_HOME=/server/flwr \
    FLWR_TELEMETRY_ENABLED=0 \
    FLWR_DISABLE_UPDATE_CHECK=1 \
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
COPY deploy/constraints.txt dist/*.whl /tmp/install/
RUN pip install --no-cache-dir --require-hashes --requirement /tmp/install/constraints.txt \
    && pip install --no-cache-dir --no-deps /tmp/install/*.whl \
    && rm -r /tmp/install \
    && useradd --uid 10001 --no-create-home fedopl
USER 10001
WORKDIR /server
ENTRYPOINT ["flower-superlink"]
CMD ["--help"]
