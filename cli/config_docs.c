#include "cli/cli.h"
#include "cli/config_table.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Documentation from the table: docs/configuration.md, the man page, the completion of bash. */

static const unsigned all_verbs = (1u << VERB_COUNT) - 1;

/* ---- docs/configuration.md ---- */

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
	static const char *const kinds[] = {"text", "`on`, `off`", "count", "size", "number", "steps"};

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
		if (!(key->verbs >> v & 1) || !cli_command_of(v))
			continue;
		str_printf(out, "%s%s", comma, verb_infos[v].name);
		comma = " ";
	}
	str_add(out, " |\n");
}

static void markdown_refusals(struct str *out)
{
	str_add(out, "\n## Understood and refused\n\nThese values are known and not done in this version; "
	             "they end "
	             "with exit code 2.\n\n");
	for (int i = 0; i < config_key_count; i++)
		for (const struct config_word *w = config_keys[i].words; w && w->name; w++)
			if (w->refusal)
				str_printf(out, "* `%s=%s` %s\n", config_keys[i].name, w->name, w->refusal);
}

void config_write_markdown(struct str *out)
{
	const char *group = "";

	str_add(out, "# Configuration\n\n"
	             "Made by `ferry help --markdown` from the table that the parser reads; not edited by "
	             "hand.\n\n"
	             "    ferry VERB [CONFIG.yaml] [key=value | --key value | --key=value]...\n\n"
	             "Dashes and underscores are alike, words ignore case. Flags take `on true yes 1` and "
	             "`off false no "
	             "0`; `--key`\nalone is on, `--no-key` off. After `--` no word is an option, so a path "
	             "may begin "
	             "with a dash.\nCounts take `k M G` (`1e8` too), sizes `KiB "
	             "MiB GiB TiB KB "
	             "MB GB TB`. Steps are a\nwhole number, or between 0 and 1 a fraction of the run, "
	             "rounded up. Later "
	             "settings win: default, file, command\nline. Several files may be named. A file may "
	             "hold keys of "
	             "other verbs; on the command line they are an error, as\nis an unknown key anywhere. "
	             "`plan` takes "
	             "every key of `train`: where the column of verbs does not name it, the key changes "
	             "nothing\nof a plan.\n\n"
	             "| verb | does | needs |\n|---|---|---|\n");
	for (int v = 0; v < VERB_COUNT; v++) {
		if (!cli_command_of(v))
			continue;
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
	str_add(out,
	        "\n## Files of other trainers\n\n"
	        "Files for accelerate, axolotl, torchtune, LLaMA-Factory and transformers are read as they "
	        "are; "
	        "a line says\nwhich one was recognised. `fsdp_config` blocks are understood with and without "
	        "the "
	        "`fsdp_` prefix. Keys that\nchange nothing here (trackers, launchers, kernels by name) are "
	        "named "
	        "in one line; keys that would change what is\ntrained and are not done (adapters, quantized "
	        "weights, other optimizers, preference training) are refused by name.\nOf `batch_size` "
	        "axolotl "
	        "means the rows of a whole step on one device, the others those of a micro-batch.\n");
}

/* ---- man page ---- */

/* Text with what roff would take for itself written out. */
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

		if (!cli_command_of(v))
			continue;
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
        ".TP\n.B 1\nThe run failed; what was committed is safe.\n"
        ".TP\n.B 2\nBad usage, configuration, model or data; nothing was written.\n"
        ".TP\n.B 3\nStopped by a signal after a checkpoint was committed.\n"
        ".TP\n.B 4\nLoss or gradients were not finite for too many steps in a row.\n"
        ".TP\n.B 5\nThe plan does not fit this machine.\n"
        ".SH SIGNALS\n"
        "SIGINT, SIGTERM and SIGUSR1 end the step, commit a checkpoint and print the command that goes on. A "
        "second "
        "SIGINT\nends the program at once.\n"
        ".SH ENVIRONMENT\n"
        "What the CUDA device reads.\n"
        ".TP\n.B FERRY_LIBRARY_PATH\nDirectories, with colons between them, where cuBLASLt, cuDNN and NCCL "
        "are looked for first.\n"
        ".TP\n.B FERRY_MATMUL=plain\nMatrix products run on a kernel of ferry's own instead of cuBLASLt.\n"
        ".TP\n.B FERRY_ATTENTION=cudnn\nAttention runs on cuDNN's kernels where all documents are "
        "as long as the longest of the run and it has one that gives the same bits each time.\n"
        ".TP\n.B FERRY_NCCL=1\nCollectives go through NCCL even in a world of one GPU.\n";

void config_write_man(struct str *out)
{
	const char *group = "";

	str_printf(out, ".TH FERRY 1 \"\" \"ferry %s\" \"User Commands\"\n", FERRY_VERSION);
	str_add(out, ".SH NAME\nferry \\- fine\\-tune language models that do not fit the GPU\n"
	             ".SH SYNOPSIS\n.B ferry\n.I VERB\n[\\fICONFIG.yaml\\fR]... [\\fIkey\\fR=\\fIvalue\\fR | "
	             "\\-\\-\\fIkey value\\fR]...\n"
	             ".SH DESCRIPTION\n"
	             "Weights, gradients and optimizer state live in host memory and cross to the device "
	             "unit by unit.\n"
	             "Settings come from built\\-in defaults, then files, then the command line; later ones "
	             "win. Dashes and\n"
	             "underscores are alike, words ignore case. Counts take k, M, G; sizes KiB MiB GiB TiB "
	             "KB MB GB TB. "
	             "Steps\nare a whole number, or between 0 and 1 a fraction of the run.\n");
	man_verbs(out);
	str_add(out, ".SH KEYS\nferry \\fIVERB\\fR \\-\\-help says which verb knows which.\n");
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
		if (cli_command_of(v))
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
		if (cli_command_of(v))
			str_printf(out, "%s ", verb_infos[v].name);
	str_add(out, "help\" -- \"$word\"))\n\t\treturn\n\tfi\n\tcase \"$verb\" in\n");
	for (int v = 0; v < VERB_COUNT; v++) {
		if (!cli_command_of(v))
			continue;
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
