extern "C" __global__ void __launch_bounds__(256)
fused(const float* __restrict__ in0, const float* __restrict__ in1, const float* __restrict__ in2, const float* __restrict__ in3, const float* __restrict__ in4, const float* __restrict__ in5, float* __restrict__ out0, float* __restrict__ out1, float* __restrict__ out2, float* __restrict__ out3) {
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    if (block < 8) {
        const int part = block;
        const int q = part / 8 + team;
        const int p = part % 8 * 256 + lane;
        const float v0 = in2[p];
        const float v2 = v0 * 0.9f;
        const float v3 = in1[p];
        const float v5 = v3 * 0.1f;
        const float v6 = v2 + v5;
        const float v7 = in0[p];
        const float v9 = v6 * 0.001f;
        const float v10 = v7 - v9;
        out0[p] = v6;
        out1[p] = v10;
    }
    else {
        const int part = block - 8;
        const int q = part + team;
        const int p = lane;
        if (p < 17) {
            const float v0 = in5[p];
            const float v2 = v0 * 0.9f;
            const float v3 = in4[p];
            const float v5 = v3 * 0.1f;
            const float v6 = v2 + v5;
            const float v7 = in3[p];
            const float v9 = v6 * 0.001f;
            const float v10 = v7 - v9;
            out2[p] = v6;
            out3[p] = v10;
        }
    }
}
