# docker build -t lightzero-lite .
# docker run --rm -v "$PWD/runs:/runs" --user "$(id -u):$(id -g)" lightzero-lite env=cartpole
# docker run --rm --gpus all --shm-size=1g -e NPROC_PER_NODE=4 lightzero-lite env=cartpole
FROM python:3.11-slim

# An additional package index, for example one with CPU builds of torch; pip reads it by this name.
ARG PIP_EXTRA_INDEX_URL=""
ENV PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1

WORKDIR /app

# Dependencies first: a change of the source leaves this layer as it is.
COPY pyproject.toml constraints.txt ./
RUN python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
print(*project['dependencies'], sep='\n')" > requirements.txt \
    && pip install -c constraints.txt -r requirements.txt

COPY README.md LICENSE train.py ./
COPY configs configs
COPY lightzero_lite lightzero_lite
RUN pip install --no-deps -e .

# Run folders land in /runs. Compiled kernels are kept in a folder that any user may write.
RUN useradd --create-home --uid 1000 trainer \
    && mkdir -p /runs /cache \
    && chown 1000 /runs \
    && chmod 1777 /cache
ENV NUMBA_CACHE_DIR=/cache NPROC_PER_NODE=1
USER 1000
WORKDIR /runs

# 127.0.0.1: the name of a container's host need not lead anywhere.
ENTRYPOINT ["sh", "-c", "exec torchrun --standalone --local-addr=127.0.0.1 --nproc_per_node=\"$NPROC_PER_NODE\" /app/train.py \"$@\"", "train"]
CMD ["env=cartpole"]
