/* Adds the adapters of a checkpoint to its model. */
#include "checkpoint/load_parts.h"

#include "base/err.h"
#include "checkpoint/hf/peft.h"

int checkpoint_adapt(const struct checkpoint *checkpoint, struct model *model)
{
	const json_t *object = json_object_get(checkpoint->manifest->training, "adapter");
	struct peft_config adapter = {0};
	int err = object ? peft_config_of(&adapter, object, manifest_name) : 0;

	if (!err && object)
		err = model_adapt(model, &adapter.options);
	peft_config_free(&adapter);
	return err ? err_note(err, "%s", checkpoint->path) : 0;
}
