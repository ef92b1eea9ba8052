# batchscale in a container, as a user without rights. Build from the repository:
#   docker build --tag batchscale .
#   docker build --tag batchscale --build-arg BASE_IMAGE=nvidia/cuda:13.0.1-runtime-ubuntu24.04 --build-arg JAX=jax[cuda13] .
# The base image needs Python 3.11 or later with venv, or apt to install it.
ARG BASE_IMAGE=python:3.12-slim

FROM ${BASE_IMAGE} AS build
ARG EXTRAS=web,jax
ARG JAX=jax
# versions are those of the base image, which is a parameter
# hadolint ignore=DL3008
RUN if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then \
        apt-get update && apt-get install --yes --no-install-recommends python3 python3-venv \
        && rm -rf /var/lib/apt/lists/*; \
    fi
RUN python3 -m venv /opt/batchscale
WORKDIR /source
COPY pyproject.toml README.md LICENSE THIRD_PARTY.md CHANGELOG.md constraints.txt ./
COPY src src
RUN PIP_CONSTRAINT=constraints.txt /opt/batchscale/bin/python -m pip install --no-cache-dir ".[${EXTRAS}]" "${JAX}"

FROM ${BASE_IMAGE}
# hadolint ignore=DL3008
RUN if ! command -v python3 >/dev/null; then \
        apt-get update && apt-get install --yes --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*; \
    fi
COPY --from=build /opt/batchscale /opt/batchscale
RUN groupadd --gid 10001 batchscale && useradd --uid 10001 --gid 10001 --create-home batchscale \
    && mkdir --parents /records /state /home/batchscale/.cache \
    && chown batchscale:batchscale /records /state /home/batchscale/.cache
USER 10001:10001
ENV PATH=/opt/batchscale/bin:$PATH BATCHSCALE_CACHE=/home/batchscale/.cache/batchscale
WORKDIR /records
ENTRYPOINT ["batchscale"]
CMD ["--help"]
