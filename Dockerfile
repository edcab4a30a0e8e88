# syntax=docker/dockerfile:1
# The image of every riverrun role: `docker build -t riverrun .`, then `docker run --rm riverrun --help`.
# The base is held by digest (of the index, so for amd64 and arm64 alike); raise tag and digest together.
FROM python:3.12.13-slim-bookworm@sha256:8a7e7cc04fd3e2bd787f7f24e22d5d119aa590d429b50c95dfe12b3abe52f48b AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

# The pinned packages first: this layer is made again only when a pin changes.
RUN python -m venv /opt/riverrun
COPY requirements/base.txt requirements/
RUN /opt/riverrun/bin/pip install --require-hashes -r requirements/base.txt

COPY pyproject.toml README.md LICENSE ./
COPY cli/ cli/
COPY core/ core/
COPY drift/ drift/
COPY learners/ learners/
COPY replay/ replay/
COPY rollout/ rollout/
COPY serving/ serving/
COPY snapshots/ snapshots/
COPY stream/ stream/
# Then what only building needs goes: the final image can install nothing.
RUN /opt/riverrun/bin/pip install --no-deps --no-build-isolation . \
    && /opt/riverrun/bin/pip uninstall -y hatchling editables pathspec pluggy tomlkit trove-classifiers pip

FROM python:3.12.13-slim-bookworm@sha256:8a7e7cc04fd3e2bd787f7f24e22d5d119aa590d429b50c95dfe12b3abe52f48b

# The one place that riverrun writes to besides /tmp: compiled kernels, so that a restart starts fast.
RUN python -m pip uninstall -y --root-user-action=ignore pip \
    && groupadd --gid 10001 riverrun \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin riverrun \
    && install -d -o riverrun -g riverrun -m 0750 /var/cache/riverrun
COPY --from=build /opt/riverrun /opt/riverrun

ENV PATH=/opt/riverrun/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/var/cache/riverrun
USER 10001:10001
WORKDIR /tmp
EXPOSE 8400 8401
# No HEALTHCHECK here: what is healthy differs by role, so docker-compose.yml and Kubernetes say it.
ENTRYPOINT ["riverrun"]
CMD ["--help"]
