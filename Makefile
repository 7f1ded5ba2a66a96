VENV ?= .venv
PYTHON ?= python3
DEMO ?= demo
BIN := $(VENV)/bin

.PHONY: demo test lint format clean

demo: $(VENV)/.installed
	@mkdir -p $(DEMO)
	$(BIN)/pipetrace gen zb-h1 -p 4 -m 8 -o $(DEMO)/zb-h1.pftrace -o $(DEMO)/zb-h1.html
	$(BIN)/pipetrace run zb-h1 -p 4 -m 8 --costs F=20,I=20,W=20 -o $(DEMO)/run
	$(BIN)/pipetrace diff $(DEMO)/run
	@echo
	@echo "The ideal:             $(DEMO)/zb-h1.html, and for Perfetto $(DEMO)/zb-h1.pftrace"
	@echo "Ideal above measured:  $(DEMO)/run/diff.html"
	@echo "One trace with both:   $(DEMO)/run/diff.pftrace (open it: $(BIN)/pipetrace open $(DEMO)/run/diff.pftrace)"

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,image]'
	touch $@

clean:
	rm -rf $(VENV) $(DEMO)
