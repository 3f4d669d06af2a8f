# Two stages: the first builds the wheel, the second has only what runs.
#
#   docker build -t holdfast .
#   docker run --rm --read-only -v ./holdfast.yaml:/etc/holdfast/holdfast.yaml:ro \
#     -p 8080:8080 holdfast
#
# Without a file of yours it answers 503 to everything, with what to mount, and is never ready. The
# root file system can be read-only and all capabilities dropped.
#
# `make image` builds it with labels that say what it was built from.

# The base image is pinned: the digest decides, and the tag says what it was. RELEASING.md says how to
# take a newer one.
ARG PYTHON_IMAGE=python:3.13.15-slim-trixie
ARG PYTHON_DIGEST=sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b

FROM ${PYTHON_IMAGE}@${PYTHON_DIGEST} AS build
WORKDIR /src
# Every package has the version and the hash of the lock, those that build the wheel included.
COPY requirements.lock requirements-build.lock ./
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --only-binary :all: --require-hashes \
        -r requirements-build.lock \
    && python -m venv /opt/holdfast \
    && /opt/holdfast/bin/pip install --no-cache-dir --only-binary :all: --require-hashes \
        -r requirements.lock
COPY . .
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /dist . \
    && /opt/holdfast/bin/pip install --no-cache-dir --no-deps --no-index /dist/*.whl

FROM ${PYTHON_IMAGE}@${PYTHON_DIGEST}
COPY --from=build /opt/holdfast /opt/holdfast
# For what shall outlive the container: a volume that is mounted here belongs to the user.
RUN install -d -m 0700 -o 65532 -g 65532 /var/lib/holdfast
# What is served until a file is mounted in its place.
COPY config/deploy/image/holdfast.yaml /etc/holdfast/holdfast.yaml
ENV PATH=/opt/holdfast/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# Numeric, so that Kubernetes can see that it is not root (runAsNonRoot).
USER 65532:65532
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 \
    CMD ["holdfast", "healthcheck"]
ENTRYPOINT ["holdfast"]
CMD ["run", "-c", "/etc/holdfast/holdfast.yaml"]

# Last, because they differ with every build. `make image` gives them; without it the image does not
# say from which commit it is.
ARG PYTHON_IMAGE
ARG PYTHON_DIGEST
ARG VERSION=
ARG REVISION=
ARG CREATED=
LABEL org.opencontainers.image.title="holdfast" \
      org.opencontainers.image.description="A sidecar proxy that retries, throttles and de-duplicates HTTP calls, route by route" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://holdfast.example" \
      org.opencontainers.image.documentation="https://holdfast.example/blob/main/docs/index.md" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
      org.opencontainers.image.base.digest="${PYTHON_DIGEST}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
