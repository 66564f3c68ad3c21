/* links: base model model_families checkpoint */
/* seeds: */
/* The JSON of a quantized matrix of bitsandbytes: what is taken has sizes in bounds and a format. */
#include "tests/fuzz/fuzz.h"

#include "checkpoint/hf/hf_coded.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct hf_quant_state s;
	int err = hf_quant_state_parse(&s, "fuzz", (const char *)data, len);

	if (err) {
		fuzz_refused(err);
		return 0;
	}
	fuzz_require(s.shape[0] > 0 && s.shape[1] > 0 && s.shape[0] <= INT32_MAX && s.shape[1] <= INT32_MAX);
	fuzz_require(weight_format_coded(s.code, s.is_nested ? CODE_SCALE_NESTED : CODE_SCALE_F32, s.block));
	return 0;
}
