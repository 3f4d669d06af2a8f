# Two stages: the first builds the wheel, the second has only what runs.
#
#   docker build -t holdfast .
#   docker run --rm --read-only -v ./holdfast.yaml:/etc/holdfast/holdfast.yaml:ro \
#     -p 8080:8080 holdfast
#
# Without a file of yours it answers 503 to everything, with what to mount, and is never ready. The root file system can be read-only and all capabilities dropped.

FROM python:3.13-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/holdfast \
    && /opt/holdfast/bin/pip install --no-cache-dir .

FROM python:3.13-slim
LABEL org.opencontainers.image.title="holdfast" \
      org.opencontainers.image.licenses="Apache-2.0"
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
