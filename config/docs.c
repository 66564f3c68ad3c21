/* Writes docs/reference/keys.md, the man page and bash completion from the table of keys. */
#include "config/table.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const unsigned all_verbs = (1u << VERB_COUNT) - 1;

/* ---- docs/reference/keys.md ---- */

static void markdown_cell(struct str *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '|')
			str_add_char(out, '\\');
		str_add_char(out, *text);
	}
}

static void markdown_words(struct str *out, const struct config_key *key)
{
	int first = 1;

	for (const struct config_word *w = key->words; w && w->name; w++) {
		if (w->refusal)
			continue;
		str_printf(out, "%s`%s`", first ? "" : ", ", w->name);
		first = 0;
	}
}

static void markdown_value(struct str *out, const struct config_key *key)
{
	static const char *const kinds[] = {[TYPE_TEXT] = "text",
	        [TYPE_PATTERN] = "regular expression, or a list",
	        [TYPE_TEXTS] = "text, or a list",
	        [TYPE_FLAG] = "`on`, `off`",
	        [TYPE_COUNT] = "count",
	        [TYPE_BYTES] = "size",
	        [TYPE_REAL] = "number",
	        [TYPE_STEPS] = "steps"};

	if (key->type == TYPE_SET) {
		str_add(out, "list of ");
		markdown_words(out, key);
	} else if (key->type == TYPE_ENUM) {
		markdown_words(out, key);
	} else {
		str_add(out, kinds[key->type]);
		if (key->words)
			str_add(out, ", ");
		markdown_words(out, key);
	}
}

static void markdown_row(struct str *out, const struct config_key *key)
{
	const char *alias = key->aliases, *comma = "";

	str_printf(out, "| `%s` | %s%s%s | ", key->name, *key->default_text ? "`" : "", key->default_text,
	        *key->default_text ? "`" : "");
	markdown_value(out, key);
	str_add(out, " | ");
	markdown_cell(out, key->meaning);
	str_add(out, " | ");
	while (alias && *alias) {
		size_t len = strcspn(alias, " ");

		str_printf(out, "%s`%.*s`", comma, (int)len, alias);
		comma = " ";
		alias += len;
		alias += strspn(alias, " ");
	}
	str_add(out, " | ");
	comma = "";
	for (int v = 0; v < VERB_COUNT; v++) {
		if ((key->verbs & all_verbs) == all_verbs) {
			str_add(out, "all");
			break;
		}
		if (!(key->verbs >> v & 1))
			continue;
		str_printf(out, "%s%s", comma, verb_infos[v].name);
		comma = " ";
	}
	str_add(out, " |\n");
}

static void markdown_refusals(struct str *out)
{
	str_add(out, "\n## Not supported yet\n\nThese values end with exit code 2.\n\n| value | why "
	             "|\n|---|---|\n");
	for (int i = 0; i < config_key_count; i++)
		for (const struct config_word *w = config_keys[i].words; w && w->name; w++)
			if (w->refusal) {
				str_printf(out, "| `%s=%s` | ", config_keys[i].name, w->name);
				markdown_cell(out, w->refusal);
				str_add(out, " |\n");
			}
}

void config_write_markdown(struct str *out)
{
	const char *group = "";

	str_add(out,
	        "# Keys\n\n"
	        "Generated: `ferry help --markdown`. The parser reads the same table.\n\n"
	        "    ferry VERB [CONFIG.yaml] [key=value | --key value | --key=value]...\n\n"
	        "- Later settings win: default, file, command line. Several files may be named.\n"
	        "- `-` and `_` are alike, and case does not matter. After `--` no word is an option.\n"
	        "- Flags take `on true yes 1` and `off false no 0`. `--key` alone means on, `--no-key` off.\n"
	        "- Counts take `k M G` and `1e8`; sizes take `KiB MiB GiB TiB KB MB GB TB`.\n"
	        "- Steps are a whole number, or below 1 a fraction of the run, rounded up.\n"
	        "- An unknown key is an error. A file may hold keys of other verbs, the command line may "
	        "not.\n"
	        "- `plan` and `config` accept every key of `train`. Keys without `plan` in the last column "
	        "do "
	        "not change a plan.\n\n"
	        "| verb | does | needs |\n|---|---|---|\n");
	for (int v = 0; v < VERB_COUNT; v++) {
		str_printf(out, "| `%s` | %s | ", verb_infos[v].name, verb_infos[v].meaning);
		markdown_cell(out, verb_infos[v].needs);
		str_add(out, " |\n");
	}
	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];

		if (strcmp(group, key->group)) {
			group = key->group;
			str_printf(out,
			        "\n## %s\n\n| key | default | value | meaning | also | verbs "
			        "|\n|---|---|---|---|---|---|\n",
			        group);
		}
		markdown_row(out, key);
	}
	markdown_refusals(out);
	str_add(out, "\n## Files of other trainers\n\n"
	             "ferry reads files of accelerate, axolotl, torchtune, LLaMA-Factory and transformers. "
	             "One line "
	             "says\nwhich it recognised. `fsdp_config` blocks work with and without the `fsdp_` "
	             "prefix.\n\n"
	             "- Keys without effect on results (trackers, launchers, kernels by name) are named in "
	             "one line.\n"
	             "- Keys that would change what is trained and that ferry does not support are refused "
	             "by name.\n"
	             "- `batch_size` counts the rows of a whole step in axolotl, and of a micro-batch "
	             "elsewhere.\n");
}

/* ---- man page ---- */

/* Appends text and escapes the characters that have a meaning in roff. */
static void roff(struct str *out, const char *text)
{
	if (*text == '.' || *text == '\'')
		str_add(out, "\\&");
	for (; *text; text++) {
		if (*text == '\\')
			str_add(out, "\\e");
		else if (*text == '-')
			str_add(out, "\\-");
		else
			str_add_char(out, *text);
	}
}

static void man_verbs(struct str *out)
{
	str_add(out, ".SH VERBS\n");
	for (int v = 0; v < VERB_COUNT; v++) {
		const struct verb_info *info = &verb_infos[v];

		str_printf(out, ".TP\n.B %s\n", info->name);
		str_printf(out, "%c", toupper((unsigned char)*info->meaning));
		roff(out, info->meaning + 1);
		str_add(out, ".\n.br\n");
		str_printf(out, "ferry %s ", info->name);
		roff(out, info->usage);
		str_add_char(out, '\n');
	}
}

static void man_key(struct str *out, const struct config_key *key)
{
	int first = 1;

	str_add(out, ".TP\n.B ");
	roff(out, key->name);
	if (*key->default_text) {
		str_add(out, " \\fR= ");
		roff(out, key->default_text);
	}
	str_add_char(out, '\n');
	roff(out, key->meaning);
	str_add(out, ".\n");
	for (const struct config_word *w = key->words; w && w->name; w++) {
		if (w->refusal)
			continue;
		str_add(out, first ? "Words: " : ", ");
		roff(out, w->name);
		first = 0;
	}
	if (!first)
		str_add(out, ".\n");
	if (key->aliases) {
		str_add(out, "Also: ");
		roff(out, key->aliases);
		str_add(out, ".\n");
	}
}

static const char man_end[] =
        ".SH FILES\n"
        ".TP\n.B output_dir/config.yaml\nThe resolved configuration; ferry train of it repeats the run.\n"
        ".TP\n.B output_dir/metrics.jsonl\nOne JSON object per logged step.\n"
        ".TP\n.B output_dir/checkpoint\\-000500/\nA committed checkpoint.\n"
        ".TP\n.B output_dir/model/\nThe result as a HuggingFace directory.\n"
        ".SH EXIT STATUS\n"
        ".TP\n.B 0\nDone.\n"
        ".TP\n.B 1\nThe run failed; committed checkpoints are safe.\n"
        ".TP\n.B 2\nWrong usage, configuration, model or data; nothing was written.\n"
        ".TP\n.B 3\nStopped by a signal with a checkpoint, or before the first step.\n"
        ".TP\n.B 4\nLoss or gradients were not finite for too many steps in a row.\n"
        ".TP\n.B 5\nThe plan does not fit this machine.\n"
        ".SH SIGNALS\n"
        "SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU end the step, commit a checkpoint and print "
        "the command that resumes.\nA second Ctrl-C changes nothing; a third, at least 2 s after the first, "
        "quits without a "
        "checkpoint.\nWhile one rank loads, a signal ends it at once and nothing is saved; several ranks "
        "stop after their first step.\n"
        ".SH ENVIRONMENT\n"
        "Read by the CUDA device.\n"
        ".TP\n.B FERRY_LIBRARY_PATH\nDirectories, separated by colons, to search first for cuBLASLt, cuDNN "
        "and NCCL.\n"
        ".TP\n.B FERRY_MATMUL=plain\nUse ferry's own kernel for matrix products instead of cuBLASLt.\n"
        ".TP\n.B FERRY_NCCL=1\nUse NCCL for collectives even with one GPU.\n";

void config_write_man(struct str *out)
{
	const char *group = "";

	str_printf(out, ".TH FERRY 1 \"\" \"ferry %s\" \"User Commands\"\n", FERRY_VERSION);
	str_add(out,
	        ".SH NAME\nferry \\- fine\\-tune language models that are larger than the GPU's memory\n.SH "
	        "SYNOPSIS\n.B ferry\n.I VERB\n[\\fICONFIG.yaml\\fR]... [\\fIkey\\fR=\\fIvalue\\fR | "
	        "\\-\\-\\fIkey value\\fR]...\n.SH DESCRIPTION\nWeights, gradients and optimizer state stay "
	        "in host memory. Each layer is copied to the GPU when it is\nneeded, and the CPU runs AdamW "
	        "at the same time.\n.PP\nLater settings win: defaults, files, command line. Dashes and "
	        "underscores are alike, and case does not\nmatter. Counts take k, M, G; sizes take KiB MiB "
	        "GiB TiB KB MB GB TB. Steps are a whole number, or below 1\na fraction of the run.\n");
	man_verbs(out);
	str_add(out, ".SH KEYS\nferry \\fIVERB\\fR \\-\\-help lists the keys of a verb.\n");
	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];

		if (strcmp(group, key->group)) {
			group = key->group;
			str_printf(out, ".SS %s\n", group);
		}
		man_key(out, key);
	}
	str_add(out, man_end);
	str_add(out, ".SH EXAMPLES\n.nf\n");
	for (int v = 0; v < VERB_COUNT; v++)
		roff(out, verb_infos[v].examples);
	str_add(out, ".fi\n");
}

/* ---- completion ---- */

void config_write_completion(struct str *out)
{
	str_add(out, "# bash completion of ferry; made by: ferry help --completion\n\n_ferry()\n{\n"
	             "\tlocal word=\"${COMP_WORDS[COMP_CWORD]}\" verb=\"${COMP_WORDS[1]}\" keys=\n"
	             "\tif [ \"$COMP_CWORD\" = 1 ]; then\n\t\tCOMPREPLY=($(compgen -W \"");
	for (int v = 0; v < VERB_COUNT; v++)
		str_printf(out, "%s ", verb_infos[v].name);
	str_add(out, "help\" -- \"$word\"))\n\t\treturn\n\tfi\n\tcase \"$verb\" in\n");
	for (int v = 0; v < VERB_COUNT; v++) {
		str_printf(out, "\t%s) keys=\"", verb_infos[v].name);
		for (int i = 0; i < config_key_count; i++)
			if (config_key_known(&config_keys[i], v))
				str_printf(out, "%s ", config_keys[i].name);
		str_add(out, "\" ;;\n");
	}
	str_add(out, "\tesac\n\tcase \"$word\" in\n"
	             "\t--*) COMPREPLY=($(compgen -P -- -W \"$keys\" -- \"${word#--}\")) ;;\n"
	             "\t*=*) COMPREPLY=($(compgen -f -- \"${word#*=}\")) ;;\n"
	             "\t*) COMPREPLY=($(compgen -S = -W \"$keys\" -- \"$word\") $(compgen -f -- \"$word\")) "
	             ";;\n\tesac\n"
	             "\tcase \"${COMPREPLY[0]}\" in *=) compopt -o nospace ;; esac\n}\n\n"
	             "complete -o filenames -F _ferry ferry\n");
}
