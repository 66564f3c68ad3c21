/* How the states of a text's tokens become its vector. NONE: the model has a head that gives logits. */
#ifndef FERRY_DEVICE_POOL_MODE_H
#define FERRY_DEVICE_POOL_MODE_H

enum pool_mode {
	POOL_NONE,
	POOL_CLS,
	POOL_LASTTOKEN,
	POOL_MEAN,
	POOL_MEAN_SQRT_LEN,
	POOL_MAX,
	POOL_WEIGHTED_MEAN /* token t of a text has the weight t + 1 */
};

#endif
