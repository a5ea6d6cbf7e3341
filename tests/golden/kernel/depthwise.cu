static __device__ __forceinline__ float teams_reduce_sum_f32(float x, int lane, int team, float* shared) {
    int i = team * 32 + lane;
    shared[i] = x;
    __syncthreads();
    for (int d = 4; d > 0; d /= 2) {
        if (team < d) shared[i] = shared[i] + shared[i + d * 32];
        __syncthreads();
    }
    x = shared[lane];
    __syncthreads();
    return x;
}
extern "C" __global__ void __launch_bounds__(256)
fused(const float* __restrict__ in0, const float* __restrict__ in1, const float* __restrict__ in2, float* __restrict__ out0) {
    __shared__ float shared_f32[256];
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part / 25;
    const int wanted = part % 25 * 32 + lane;
    const bool active = wanted <= 783;
    const int p = active ? wanted : 783;
    const float v2 = in2[q];
    float a0 = 0.0f;
    #pragma unroll 4
    for (int r = team; r < 9; r += 8) {
        const float v0 = in1[q * 9 + r];
        const float v1 = r / 3 + p / 28 + -1 >= 0 && r / 3 + p / 28 + -1 < 28 && r % 3 + p % 28 + -1 >= 0 && r % 3 + p % 28 + -1 < 28 ? (in0[q * 784 + (r / 3) * 28 + r % 3 + p + -29]) : 0;
        const float v3 = v0 * v1;
        a0 = v3 + a0;
    }
    a0 = teams_reduce_sum_f32(a0, lane, team, shared_f32);
    const float v4 = a0;
    const float v5 = v4 + v2;
    const float v6 = v5 < 0.0f ? 0.0f : v5;
    if (team == 0 && active) {
        out0[q * 784 + p] = v6;
    }
}
