/* links: base data_template */
/* seeds: */
/* seconds: 8 */
/* A chat template with a short chat: it must end, with a text or an error. */
#include "tests/fuzz/fuzz.h"

#include "base/json.h"
#include "data/template/moment.h"
#include "data/template/template.h"

static const char chat[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"be brief\"}, {\"role\": "
                           "\"user\", \"content\": "
                           "\" hi \"}, {\"role\": \"assistant\", \"content\": \"h\xc3\xa9llo\"}], "
                           "\"add_generation_prompt\": true, "
                           "\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"tools\": null}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static json_t *variables;
	struct jinja *t = NULL;
	struct jinja_output out = {0};
	int err = jinja_parse(&t, "fuzz", (const char *)data, len);

	if (!variables)
		fuzz_require(!json_parse(&variables, "chat", chat, strlen(chat)));
	fuzz_require(variables);
	if (!err) {
		err = jinja_render(t, &out, variables, moment_now());
		fuzz_require(err || strlen(out.text) <= out.len_bytes);
		for (int64_t i = 0; !err && i < out.span_count; i++)
			fuzz_require(
			        out.spans[i].start <= out.spans[i].end && out.spans[i].end <= out.len_bytes);
	}
	if (err)
		fuzz_refused(err);
	jinja_output_free(&out);
	jinja_free(t);
	return 0;
}
