# deeprc on a CPU, as a user without rights:
#   docker build -t deeprc .
#   docker run --rm --user "$(id -u):$(id -g)" --read-only --tmpfs /tmp -v "$PWD:/data" deeprc quickstart --output /data/quickstart
# With CUDA: docker build --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu126 -t deeprc:cuda .
ARG PYTHON=3.12
FROM python:${PYTHON}-slim AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=interpret
WORKDIR /source
COPY constraints.txt ./
RUN python -m venv /opt/deeprc \
    && grep '^torch==' constraints.txt > torch.txt \
    && /opt/deeprc/bin/pip install --no-cache-dir --index-url "${TORCH_INDEX}" -r torch.txt
COPY pyproject.toml README.md LICENSE ./
COPY deeprc deeprc
COPY datasets datasets
COPY baselines baselines
COPY configs configs
RUN /opt/deeprc/bin/pip install --no-cache-dir ".[${EXTRAS}]" -c constraints.txt

FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="deeprc" \
      org.opencontainers.image.description="Immune repertoire classification with modern Hopfield networks" \
      org.opencontainers.image.licenses="MIT"
# The image gets Debian's current version of the OpenMP library, with its security updates.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 deeprc
COPY --from=build /opt/deeprc /opt/deeprc
# Compiled code and matplotlib's fonts are kept under /tmp, so that the root may be read-only.
ENV PATH=/opt/deeprc/bin:$PATH \
    NUMBA_CACHE_DIR=/tmp/numba \
    MPLCONFIGDIR=/tmp/matplotlib \
    PYTHONDONTWRITEBYTECODE=1
USER 1000
WORKDIR /data
ENTRYPOINT ["deeprc"]
CMD ["--help"]
