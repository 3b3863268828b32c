# Commands for contributors (https://just.systems). CONTRIBUTING.md explains them.

set shell := ["bash", "-euo", "pipefail", "-c"]

# List the commands
default:
    @just --list

# Start a development server on http://127.0.0.1:8200
dev *arguments:
    cargo run --locked -- dev {{ arguments }}

# Check the format, the lints and the links in comments
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    cargo doc --workspace --no-deps --document-private-items --locked

# Run the unit tests and the quick integration tests
test-fast:
    cargo test --workspace --locked --lib --bins
    cargo test --locked --test it -- architecture:: dependency_cycles:: source:: recorded:: pages::page:: pages::figures::

# Install what the tests need, then format, lint, build and test everything
test:
    tests/run

# Accept the current responses of all routes as the recorded ones
bless:
    SIGNET_ACCEPT=1 cargo test --locked --test it -- recorded::
    git diff --stat -- tests/it/recorded

# Run the micro-benchmarks; an argument selects some, such as `just bench --bench tbs`
bench *arguments:
    cargo bench --locked {{ arguments }}
