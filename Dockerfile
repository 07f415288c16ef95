# docker build --target cuda -t streamd .        an NVIDIA GPU decodes and classifies; run it with --gpus all
# docker build --target cpu  -t streamd:cpu .    everything on the CPU
#
# The configuration is mounted: docker run --gpus all -v ./configs:/etc/streamd:ro streamd
# Every package is pinned by hash. The hashes are those of the build of torch that has CUDA, so the cpu image holds it too and is no smaller.
# The wheels bring the CUDA runtime; only the driver comes from the host.

FROM python:3.12-slim-bookworm AS base
ENV PATH=/opt/streamd/bin:$PATH

# The environment has no pip of its own: the image's pip fills it, and what runs cannot install anything.
FROM base AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv --without-pip /opt/streamd
WORKDIR /src

FROM build AS streamd
COPY requirements/build.txt requirements/
RUN pip install --no-deps --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY streamd streamd
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
    && pip --python /opt/streamd/bin/python install --no-index --no-deps /dist/*.whl

FROM build AS dependencies-cpu
COPY requirements/cpu.txt requirements/
RUN pip --python /opt/streamd/bin/python install --no-deps --require-hashes -r requirements/cpu.txt

FROM build AS dependencies-cuda
# 1 adds NVIDIA DALI, 1.3 GB.
ARG WITH_DALI=0
COPY requirements/gpu.txt requirements/dali.txt requirements/
RUN case "$WITH_DALI" in 0) file=gpu ;; 1) file=dali ;; *) echo "WITH_DALI is 0 or 1, not $WITH_DALI" >&2; exit 64 ;; esac \
    && pip --python /opt/streamd/bin/python install --no-deps --require-hashes -r "requirements/$file.txt"

FROM base AS runtime
# Downloaded weights are kept under the home folder: mount a volume there to keep them longer than the container.
RUN groupadd --gid 10001 streamd && useradd --uid 10001 --gid 10001 --create-home --home-dir /var/lib/streamd --shell /usr/sbin/nologin streamd
ENV HOME=/var/lib/streamd PYTHONUNBUFFERED=1
WORKDIR /var/lib/streamd
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["streamd"]
CMD ["run", "--config", "/etc/streamd"]

# In both images the last layer is streamd alone, so that a new version of it does not move the gigabytes below again.
FROM runtime AS cpu
COPY --from=dependencies-cpu /opt/streamd /opt/streamd
COPY --from=streamd /opt/streamd /opt/streamd

# The last stage is what a build without --target makes.
FROM runtime AS cuda
# Without `video` the NVIDIA runtime leaves out the decoder's library.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,video,utility
COPY --from=dependencies-cuda /opt/streamd /opt/streamd
COPY --from=streamd /opt/streamd /opt/streamd
